// Why the floor moved: every rule in the order in which it was asked, and the one that decided.

import { classes, html } from "../ui.js";
import { useAsked } from "../live.js";
import { brief } from "../words.js";
import { Failure } from "./notice.js";

export function Why({ channelId, seq, rules }) {
  const asked = useAsked(`/channels/${channelId}/envelopes/${seq}/why`);
  if (asked.error) return html`<${Failure} error=${asked.error} />`;
  if (!asked.data) return html`<p class="nothing">Asking the rules…</p>`;
  const why = asked.data;
  return html`
    <h3>Why, at line ${why.seq}</h3>
    <p class="summary">${summary(why, rules)}</p>
    ${why.differs && html`<p class="failure">Today the rules say otherwise: ${why.differs}</p>`}
    <ol class="rules">${(why.rules ?? []).map((rule) => html`<${Rule} rule=${rule} words=${rules[rule.index]} />`)}</ol>
  `;
}

/** What decided, in the words of the graph where there are some. */
function summary(why, rules) {
  const decided = (why.rules ?? []).find((rule) => rule.decided);
  const words = rules[decided?.index];
  if (words === undefined) return why.summary;
  const [told] = why.summary.split(": ");
  return `${told}: transition ${decided.index} held, ${words.text}.`;
}

function Rule({ rule, words }) {
  const asked = rule.asked !== false;
  const verdict = rule.decided ? "decided" : !asked ? "not asked" : rule.held === true ? "held" : rule.held === false ? "did not hold" : "unknown";
  const values = Object.entries(rule.values ?? {});
  return html`
    <li class=${classes("rule", rule.decided && "decided", !asked && "unasked")}>
      <div class="rule-head">
        <span class="tag">${rule.kind}${rule.index === undefined || rule.index === null ? "" : ` ${rule.index}`}</span>
        <span class=${`verdict ${rule.decided ? "good" : ""}`}>${verdict}</span>
      </div>
      <code class="condition" title=${rule.text}>${words?.text ?? rule.text}</code>
      ${rule.target && html`<span class="target">→ ${words?.target ?? rule.target}</span>`}
      ${values.length > 0 &&
      html`<dl class="pairs">${values.map(([key, value]) => html`<div><dt>${key}</dt><dd><code>${brief(value, 120)}</code></dd></div>`)}</dl>`}
      ${rule.error && html`<p class="failure">${rule.error}</p>`}
    </li>
  `;
}
