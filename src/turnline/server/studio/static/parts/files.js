// The files of a line: images that are shown, and a download for each file.
//
// Rule 1: the browser never decides what a file is. Its bytes are fetched with the token and become a blob whose
// type comes from `SHOWN` or is "bytes". So HTML and SVG never become a page of this origin.
// Rule 2: the address of a blob lives as long as the part that made it, and a fetch ends with it.

import { html, useEffect, useRef, useState } from "../ui.js";
import { getFile } from "../api.js";
import { filesOf } from "../meaning.js";
import { size } from "../words.js";

const SHOWN = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const BYTES = "application/octet-stream";
const MOST_SHOWN_BYTES = 10 * 1024 * 1024;
const MOST_IN_A_ROW = 4;

export const IMAGES_HEIGHT = 104;
export const NAMES_HEIGHT = 22;

/** The height of `RowFiles`. */
export function filesHeight(line) {
  const { images, others } = sorted(line);
  return (images.length ? IMAGES_HEIGHT : 0) + (others.length ? NAMES_HEIGHT : 0);
}

/** The files of a line of the timeline: its first images, and the names of all others. */
export function RowFiles({ line }) {
  const { images, others } = sorted(line);
  return html`
    ${images.length > 0 && html`<div class="images">${images.map((file) => html`<${Image} key=${file.address} file=${file} />`)}</div>`}
    ${others.length > 0 && html`<div class="file-names">${others.map((file) => html`<span class="tag">${labelOf(file)}</span>`)}</div>`}
  `;
}

/** Every file of a line, with a button that saves it. */
export function LineFiles({ line }) {
  const files = filesOf(line);
  if (files.length === 0) return null;
  return html`
    <section class="files" aria-label="Files">
      <h4>Files</h4>
      <ul>
        ${files.map(
          (file) => html`
            <li key=${file.address}>
              ${isShown(file) && html`<${Image} file=${file} />`}
              <${Download} file=${file} />
            </li>
          `,
        )}
      </ul>
    </section>
  `;
}

function sorted(line) {
  const files = filesOf(line);
  const images = files.filter(isShown).slice(0, MOST_IN_A_ROW);
  return { images, others: files.filter((file) => !images.includes(file)) };
}

function isShown(file) {
  return SHOWN.has(file.media_type) && file.size <= MOST_SHOWN_BYTES;
}

function labelOf(file) {
  return `${file.name} (${size(file.size)})`;
}

function Image({ file }) {
  const [url, setUrl] = useState(null);
  const [problem, setProblem] = useState(null);
  const load = useBlob(file, file.media_type);
  useEffect(() => void load().then(setUrl, (error) => setProblem(problemOf(error))), [file.address]);
  if (problem) return html`<span class="tag">${labelOf(file)}: ${problem}</span>`;
  if (!url) return html`<span class="image" role="status" aria-label=${`Reading ${file.name}`}></span>`;
  return html`<img class="image" src=${url} alt=${file.name} onError=${() => setProblem("not an image")} />`;
}

function Download({ file }) {
  const [problem, setProblem] = useState(null);
  const load = useBlob(file, BYTES);
  const save = async () => {
    try {
      const link = Object.assign(document.createElement("a"), { href: await load(), download: file.name });
      link.click();
      setProblem(null);
    } catch (error) {
      setProblem(problemOf(error));
    }
  };
  return html`
    <span class="file"><span class="file-name">${file.name}</span> <span class="muted">${file.media_type}, ${size(file.size)}</span></span>
    <button aria-label=${`Download ${file.name}`} onClick=${save}>Download</button>
    ${problem && html`<span role="alert">${problem}</span>`}
  `;
}

/** Returns what fetches a file and returns the address of its bytes, the same one each time. */
function useBlob(file, type) {
  const made = useRef(null);
  useEffect(() => {
    const aborting = new AbortController();
    const mine = { aborting, url: null };
    made.current = mine;
    return () => {
      aborting.abort();
      if (mine.url) URL.revokeObjectURL(mine.url);
    };
  }, [file.address]);
  return async () => {
    const mine = made.current;
    if (mine.url) return mine.url;
    const bytes = await getFile(file.address, mine.aborting.signal);
    mine.aborting.signal.throwIfAborted();
    return (mine.url ??= URL.createObjectURL(new Blob([bytes], { type })));
  };
}

function problemOf(error) {
  if (error.name === "AbortError") return null;
  return error.status === 404 ? "no longer here" : error.message;
}
