// The whole: signed in or not, and the page that the route names.

import { html, useEffect, useState } from "./ui.js";
import { onSession, token } from "./session.js";
import { useRoute } from "./route.js";
import { Login } from "./pages/login.js";
import { Channels } from "./pages/channels.js";
import { Channel } from "./pages/channel.js";
import { Tasks } from "./pages/tasks.js";
import { Flows } from "./pages/flows.js";
import { Flow } from "./pages/flow.js";
import { Search } from "./pages/search.js";
import { Shell } from "./shell.js";

export function App() {
  const [signedIn, setSignedIn] = useState(() => token() !== "");
  const route = useRoute();
  useEffect(() => onSession(() => setSignedIn(token() !== "")), []);
  if (!signedIn) return html`<${Login} />`;
  const [place = "channels"] = route.parts;
  return html`<${Shell} place=${place} path=${route.parts.join("/")}><${Page} route=${route} /><//>`;
}

function Page({ route }) {
  const [place = "channels", id] = route.parts;
  if (place === "channels" && id) return html`<${Channel} key=${id} channelId=${id} query=${route.query} />`;
  if (place === "flows" && id) return html`<${Flow} key=${id} name=${id} />`;
  const pages = { channels: Channels, tasks: Tasks, flows: Flows, search: Search };
  const Found = pages[place] ?? Channels;
  return html`<${Found} key=${place} query=${route.query} />`;
}
