// Light or dark: as the system has it, until somebody chooses.

const KEY = "turnline.theme";
const ORDER = ["system", "light", "dark"];

export function theme() {
  return localStorage.getItem(KEY) ?? "system";
}

/** The choice after this one. */
export function nextTheme() {
  const chosen = ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length];
  localStorage.setItem(KEY, chosen);
  applyTheme();
  return chosen;
}

export function applyTheme() {
  const chosen = theme();
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}
