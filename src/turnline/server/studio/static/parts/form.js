// A form made from a schema: the JSON Schema of a flow's input, or the fields of a task.
//
// Rule: what is left empty is not sent, so that the server's defaults hold. What cannot be read
// as its type is sent as it was written, and the server says what is wrong with it.
// Files are handed on beside the rest: [[name of the field, File], ...].

import { html, useMemo, useState } from "../ui.js";
import { Failure } from "./notice.js";

const ONE_LINE = 200;

/** The fields of either form of schema: [{name, type, required, ...}]. */
export function fieldsOf(schema) {
  const isJsonSchema = schema?.properties !== undefined && schema?.type === "object";
  const required = new Set(isJsonSchema ? schema.required ?? [] : []);
  const given = isJsonSchema ? schema.properties : schema ?? {};
  return Object.entries(given).map(([name, field]) => {
    const spec = typeof field === "string" ? { type: field } : field;
    const type = Array.isArray(spec.type) ? spec.type.find((one) => one !== "null") : spec.type;
    return { ...spec, name, type: type ?? "string", required: required.has(name) || spec.required === true };
  });
}

export function Form({ schema, verb, onSubmit, id = "form" }) {
  const fields = useMemo(() => fieldsOf(schema), [schema]);
  const [values, setValues] = useState(() => Object.fromEntries(fields.map((one) => [one.name, first(one)])));
  const [extra, setExtra] = useState("{}");
  const [error, setError] = useState(null);
  const [isSending, setIsSending] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setIsSending(true);
    try {
      setError(null);
      await onSubmit(fields.length ? gathered(fields, values) : JSON.parse(extra), filesIn(fields, values));
    } catch (refused) {
      setError(refused);
    }
    setIsSending(false);
  };
  const set = (name, value) => setValues((before) => ({ ...before, [name]: value }));
  return html`
    <form class="form" onSubmit=${submit}>
      ${fields.map((field) => html`<${Field} key=${field.name} id=${`${id}-${field.name}`} field=${field} value=${values[field.name]} onChange=${(value) => set(field.name, value)} />`)}
      ${fields.length === 0 &&
      html`<div class="field"><label for=${`${id}-json`}>Input, as JSON</label><textarea id=${`${id}-json`} class="mono" rows="4" value=${extra} onInput=${(event) => setExtra(event.target.value)}></textarea></div>`}
      <${Failure} error=${error} />
      <button class="primary" disabled=${isSending}>${verb}</button>
    </form>
  `;
}

function Field({ id, field, value, onChange }) {
  const input = { id, value, required: field.required && field.type !== "boolean", onInput: (event) => onChange(event.target.value), "aria-describedby": `${id}-hint` };
  const hint = [isFile(field) ? "file" : ["string", "boolean"].includes(field.type) ? field.format : field.type, field.description ?? "", range(field)].filter(Boolean).join(" · ");
  return html`
    <div class="field">
      <label for=${id}>${field.title ?? field.name}${field.required && html`<span class="needed" title="Required"> *</span>`}</label>
      <${Control} field=${field} input=${input} value=${value} onChange=${onChange} />
      <span class="hint" id=${`${id}-hint`}>${hint}</span>
    </div>
  `;
}

function Control({ field, input, value, onChange }) {
  if (isFile(field)) {
    const one = field.items ?? field;
    return html`<input id=${input.id} type="file" required=${field.required} multiple=${field.type === "array"} accept=${one["x-media-types"]?.join(",")} aria-describedby=${input["aria-describedby"]} onChange=${(event) => onChange([...event.target.files])} />`;
  }
  if (field.enum) {
    return html`
      <select ...${input} onChange=${(event) => onChange(event.target.value)}>
        ${!field.required && html`<option value="">(none)</option>`}
        ${field.enum.map((one) => html`<option value=${one}>${String(one)}</option>`)}
      </select>
    `;
  }
  if (field.type === "boolean") {
    return html`
      <select ...${input} onChange=${(event) => onChange(event.target.value)}>
        <option value="">${field.required ? "Choose…" : "(none)"}</option><option value="true">Yes</option><option value="false">No</option>
      </select>
    `;
  }
  if (field.type === "object" || field.type === "array") return html`<textarea ...${input} class="mono" rows="3" placeholder=${field.type === "array" ? "[ ]" : "{ }"}></textarea>`;
  if (field.type === "string" && (field.maxLength ?? field.max ?? 0) > ONE_LINE) return html`<textarea ...${input} rows="3"></textarea>`;
  const type = { integer: "number", number: "number", email: "email" }[field.type] ?? { email: "email" }[field.format] ?? "text";
  return html`<input ...${input} type=${type} step=${field.type === "number" ? "any" : undefined} />`;
}

function isFile(field) {
  return field.format === "binary" || field.items?.format === "binary";
}

function filesIn(fields, values) {
  return fields.filter(isFile).flatMap((field) => [...(values[field.name] || [])].map((file) => [field.name, file]));
}

function first(field) {
  if (field.default !== undefined && field.default !== null) return written(field.default);
  return field.enum && field.required ? String(field.enum[0]) : "";
}

function written(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** What the form says, as JSON. */
function gathered(fields, values) {
  const found = {};
  for (const field of fields) {
    const text = values[field.name];
    if (isFile(field)) continue;
    if (text === "" && !(field.required && field.type === "string")) continue;
    found[field.name] = read(field, text);
  }
  return found;
}

function read(field, text) {
  const isText = ["string", "email", "date", "datetime", "uuid"].includes(field.type);
  if (isText) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function range(field) {
  const least = field.minimum ?? field.min;
  const most = field.maximum ?? field.max;
  if (least === undefined && most === undefined) return "";
  return `${least ?? "…"} to ${most ?? "…"}`;
}
