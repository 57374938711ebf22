// What every part is written with: Preact, its hooks, and htm, which are vendored as globals.
//
// Rule: text is text. Whatever an agent said goes into a template as a value, and Preact makes
// a text node of it; no part sets markup from a string.

const { preact, preactHooks, htm } = globalThis;

export const { render, Fragment, createContext } = preact;
export const { useState, useEffect, useRef, useMemo, useCallback, useLayoutEffect, useContext, useReducer } =
  preactHooks;
export const html = htm.bind(preact.h);

/** Names of classes, without those that are not meant. */
export function classes(...names) {
  return names.filter(Boolean).join(" ");
}
