// Where the studio begins.

import { html, render } from "./ui.js";
import { adoptToken } from "./session.js";
import { applyTheme } from "./theme.js";
import { App } from "./app.js";

adoptToken();
applyTheme();
render(html`<${App} />`, document.getElementById("studio"));
