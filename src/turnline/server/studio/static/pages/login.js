// Signing in: with a token, which stays in this tab.

import { html, useState } from "../ui.js";
import { signIn } from "../session.js";

export function Login() {
  const [given, setGiven] = useState("");
  const submit = (event) => {
    event.preventDefault();
    if (given.trim()) signIn(given);
  };
  return html`
    <main class="login">
      <form class="card" onSubmit=${submit}>
        <span class="mark" aria-hidden="true"></span>
        <h1>Turnline Studio</h1>
        <p class="muted">
          Paste a token or an API key. It is kept in this tab, until you close it. <code>turnline serve --dev</code> prints
          an address that is signed in; <code>turnline token mint</code> makes a token.
        </p>
        <label for="token">Token</label>
        <input id="token" type="password" autocomplete="off" spellcheck=${false} value=${given} autofocus
          onInput=${(event) => setGiven(event.target.value)} />
        <button class="primary" disabled=${!given.trim()}>Sign in</button>
      </form>
    </main>
  `;
}
