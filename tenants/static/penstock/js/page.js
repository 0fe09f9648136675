// What every part needs: texts given by the server, the spoken line, requests to our own pages.

export const text = (name) => document.body.dataset[`text${name[0].toUpperCase()}${name.slice(1)}`] ?? "";

const taken = new WeakMap();

/** Elements in `root`, itself included, that no part has started yet: a form that htmx inserts is started once too. */
export function untaken(root, selector) {
  const found = [...root.querySelectorAll(selector)];
  if (root instanceof Element && root.matches(selector)) found.unshift(root);
  return found.filter((element) => {
    const parts = taken.get(element) ?? taken.set(element, new Set()).get(element);
    return !parts.has(selector) && parts.add(selector);
  });
}

/** Tables that are wider than the window can be scrolled by keys. */
export function focusScrolling(root) {
  for (const box of root.querySelectorAll(".table-wrap")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
}

export function speak(sentence) {
  document.getElementById("spoken").textContent = sentence;
}

export async function getJson(url, signal) {
  const answer = await fetch(url, { headers: { Accept: "application/json" }, signal });
  if (!answer.ok) throw new Error(`${answer.status} ${url}`);
  return answer.json();
}

export function postForm(form, submitter) {
  const body = new FormData(form);
  if (submitter?.name) body.set(submitter.name, submitter.value);
  return fetch(form.action, { method: "POST", body, headers: { "HX-Request": "true" } });
}

/** A fetched part as an element. What it says of the rest of the page, `<template data-into="selector">`, goes there. */
export function parsePart(html) {
  const whole = new DOMParser().parseFromString(html, "text/html"); // a template that comes first lands in its head
  spread(whole);
  return whole.body;
}

/** Puts what a part says of the rest of the page where it belongs. */
export function spread(part) {
  for (const outside of part.querySelectorAll("template[data-into]")) {
    document.querySelector(outside.dataset.into)?.replaceChildren(outside.content);
    outside.remove();
  }
}

export const isTyping = (element) =>
  element instanceof HTMLElement &&
  (element.isContentEditable || (/^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName) && !["checkbox", "radio", "range"].includes(element.type)));

export const allowsMotion = () => !matchMedia("(prefers-reduced-motion: reduce)").matches;
