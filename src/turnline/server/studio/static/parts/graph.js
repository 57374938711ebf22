// A graph as a picture: laid out by dagre, drawn as SVG, with the floor lit.

import { classes, html, useMemo } from "../ui.js";
import { brief, hue } from "../words.js";

const { dagre } = globalThis;
const HEIGHT = 34;
const CHARACTER = 7.4;
const LABEL_CHARACTER = 6;
const MOST_LABEL = 26;
const MARGIN = 12;
const ANYONE = "anyone";
const MOST_OF_PAGE = 46;
const LEAST_SCALE = 0.65;

export function Graph({ picture, names = {}, floor, from, closed, direction = "TB", onChoose = null, title = "Graph" }) {
  const drawn = useMemo(() => laidOut(picture, direction), [picture, direction]);
  if (drawn.nodes.length === 0) return null;
  const [now, before] = [floor ? nodeOf(picture, floor)?.id : endOf(picture, closed), nodeOf(picture, from)?.id];
  const source = picture.edges.some((edge) => edge.source === before && edge.target === now) ? before : ANYONE;
  const lit = (edge) => now !== undefined && edge.source === source && edge.target === now;
  return html`
    <section class="panel graph" aria-label=${title}>
      <h2>${title}${floor && html`<span class="muted"> ${nodeOf(picture, floor)?.label ?? names[floor] ?? floor} has the floor</span>`}</h2>
      <div class="graph-box" tabindex="0" role="group" aria-label=${`${title}: ${spoken(picture)}`}>
        <svg viewBox=${`0 0 ${drawn.width} ${drawn.height}`} width=${drawn.width} height=${drawn.height} aria-hidden="true"
          style=${{ maxHeight: `max(${MOST_OF_PAGE}vh - 8px, ${Math.round(drawn.height * LEAST_SCALE)}px)` }}>
          <defs>
            <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" /></marker>
            <marker id="arrow-lit" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" /></marker>
          </defs>
          ${drawn.edges.map((edge) => html`<${Edge} edge=${edge} isLit=${lit(edge)} />`)}
          ${drawn.nodes.map((node) => html`<${Node} node=${node} isLit=${node.id === now} onChoose=${onChoose} />`)}
        </svg>
      </div>
    </section>
  `;
}

function Node({ node, isLit, onChoose }) {
  const isEnd = node.kind === "close";
  const isOpen = node.kind === ANYONE || node.kind === "someone";
  return html`
    <g class=${classes("node", isEnd ? "end" : isOpen ? "any" : hue(node.label), isLit && "floor", onChoose && "clickable")}
      transform=${`translate(${node.x - node.width / 2} ${node.y - node.height / 2})`} onClick=${onChoose && (() => onChoose(node.id))}>
      <title>${node.label} (${node.detail || node.kind})</title>
      <rect width=${node.width} height=${node.height} rx=${isEnd ? HEIGHT / 2 : 8} />
      ${node.is_first && html`<circle class="first" cx="0" cy=${HEIGHT / 2} r="4" />`}
      <text x=${node.width / 2} y=${HEIGHT / 2 + 4}>${brief(node.label, 24)}</text>
    </g>
  `;
}

function Edge({ edge, isLit }) {
  return html`
    <g class=${classes("edge", isLit && "lit")}>
      <title>${edge.labels.join("\n")}</title>
      <path d=${curve(edge.points)} marker-end=${isLit ? "url(#arrow-lit)" : "url(#arrow)"} />
      ${edge.label && html`<text x=${edge.x} y=${edge.y + 3}>${edge.label}</text>`}
    </g>
  `;
}

/** Where everything stands. Several edges between the same two are one, with their labels together. */
function laidOut(picture, direction) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: direction, nodesep: 26, ranksep: 34, edgesep: 14, marginx: MARGIN, marginy: MARGIN });
  const nodes = picture?.nodes ?? [];
  for (const node of nodes) {
    graph.setNode(node.id, { ...node, width: Math.min(200, Math.max(64, node.label.length * CHARACTER + 28)), height: HEIGHT });
  }
  const edges = merged(picture?.edges ?? []);
  for (const edge of edges) {
    const width = edge.label.length * LABEL_CHARACTER + (edge.label ? 8 : 0);
    graph.setEdge(edge.source, edge.target, { ...edge, width, height: edge.label ? 14 : 0, labelpos: "c" });
  }
  dagre.layout(graph);
  const { width, height } = graph.graph();
  return {
    nodes: graph.nodes().map((id) => graph.node(id)),
    edges: graph.edges().map((edge) => graph.edge(edge)),
    width: Math.max(80, Math.ceil(width || 0)),
    height: Math.max(60, Math.ceil(height || 0)),
  };
}

function merged(edges) {
  const found = new Map();
  for (const edge of edges) {
    const key = JSON.stringify([edge.source, edge.target]);
    const known = found.get(key) ?? { ...edge, labels: [] };
    if (edge.label) known.labels.push(edge.label);
    found.set(key, known);
  }
  return [...found.values()].map((edge) => ({ ...edge, label: together(edge.labels) }));
}

function together(labels) {
  if (labels.length === 0) return "";
  const rest = labels.length > 1 ? ` +${labels.length - 1}` : "";
  return brief(labels[0], MOST_LABEL - rest.length) + rest;
}

/** A smooth line through points. */
function curve(points) {
  const [first, ...rest] = points;
  if (rest.length < 2) return `M${first.x} ${first.y}` + rest.map((one) => `L${one.x} ${one.y}`).join("");
  let path = `M${first.x} ${first.y}`;
  for (let index = 0; index < rest.length - 1; index += 1) {
    const here = rest[index];
    const next = rest[index + 1];
    const end = index === rest.length - 2 ? next : { x: (here.x + next.x) / 2, y: (here.y + next.y) / 2 };
    path += `Q${here.x} ${here.y} ${end.x} ${end.y}`;
  }
  return path;
}

/** The node of a participant, who may be in no rule. */
function nodeOf(picture, agentId) {
  return agentId ? picture.nodes.find((node) => node.agent_id === agentId) : undefined;
}

/** The end that was reached, where it is in the picture. */
function endOf(picture, reason) {
  return picture.nodes.find((node) => node.kind === "close" && node.label === reason)?.id;
}

function labelOf(picture, id) {
  return picture?.nodes?.find((node) => node.id === id)?.label ?? id;
}

/** The picture in words, for whoever does not see it. */
function spoken(picture) {
  return (picture?.edges ?? [])
    .slice(0, 30)
    .map((edge) => `${labelOf(picture, edge.source)} to ${labelOf(picture, edge.target)}${edge.label ? `: ${edge.label}` : ""}`)
    .join("; ");
}
