// Routes: what stands behind `#` in the address, and going there.
//
//   #/channels   #/channels/ID?seq=12   #/tasks   #/flows/NAME   #/search?text=lamp

import { useEffect, useState } from "./ui.js";

/** The route as it is now: its parts, and its query. */
export function currentRoute() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query) };
}

export function address(...parts) {
  return "#/" + parts.map(encodeURIComponent).join("/");
}

export function go(...parts) {
  location.hash = address(...parts);
}

/** The route, kept up to date. */
export function useRoute() {
  const [route, setRoute] = useState(currentRoute);
  useEffect(() => {
    const changed = () => setRoute(currentRoute());
    addEventListener("hashchange", changed);
    changed(); // The address may have changed after the first render and before this effect ran.
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
