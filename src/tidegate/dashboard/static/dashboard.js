// What runs in the browser: keys, dialogs, times, the live mark, the grid of hosts.
// Pages work without all this. The server renders them, and this module decides nothing.

import { HostGrid } from "./hostgrid.js";

const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// ── theme ───────────────────────────────────────────────────────────────────────────────────────

const dark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

function toggleTheme() {
  const theme = dark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("theme", theme);
  } catch {
    /* kept for this page only */
  }
  document.dispatchEvent(new Event("themechange"));
}

// ── dialogs, buttons ────────────────────────────────────────────────────────────────────────────

// A dialog gives the focus back to what opened it. A choice of a menu is hidden by then; its menu is not.
function open(opener) {
  const dialog = one(`#${CSS.escape(opener.dataset.opens)}`);
  const menu = opener.closest("details[data-menu]");
  if (menu) dialog?.addEventListener("close", () => one("summary", menu).focus(), { once: true });
  dialog?.showModal();
}

document.addEventListener("click", (event) => {
  const target = event.target.closest("[data-opens], [data-closes], [data-theme-toggle], [aria-disabled=true], dialog");
  if (!target) return;
  if (target.dataset.opens) open(target);
  else if ("closes" in target.dataset) target.closest("dialog").close();
  else if ("themeToggle" in target.dataset) toggleTheme();
  else if (target.tagName === "DIALOG" && event.target === target) target.close();
  else if (target.ariaDisabled === "true") event.preventDefault();
});

// A menu closes after a click outside of it, and after a choice.
const closeMenus = (except) => all("details[data-menu][open]").forEach((menu) => menu !== except && (menu.open = false));
document.addEventListener("click", (event) => {
  const menu = event.target.closest("details[data-menu]");
  closeMenus(event.target.closest("[data-opens]") ? null : menu);
});
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && one("details[data-menu][open]");
  if (!menu) return;
  closeMenus(null);
  one("summary", menu).focus();
});

// Send a form only once: a second click would be a second command.
document.addEventListener("submit", (event) => {
  for (const button of all("button:not([type=button])", event.target)) {
    setTimeout(() => (button.disabled = true));
  }
});
// A browser may keep the page as it was sent, and show it again on *Back*.
addEventListener("pageshow", () => all("button[disabled]").forEach((button) => (button.disabled = false)));

// ── keys ────────────────────────────────────────────────────────────────────────────────────────

let prefix = 0;
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "Escape" && typing) return typing.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || one("dialog[open]")) return;
  if (event.key === "/") {
    event.preventDefault();
    one("[data-find]")?.focus();
  } else if (event.key === "?") one("#help")?.showModal();
  else if (event.key === "t") toggleTheme();
  else if (event.key === "g") prefix = performance.now();
  else if (performance.now() - prefix < 1500) {
    prefix = 0;
    const link = one(`.rail a[data-key="${CSS.escape(event.key)}"]`);
    if (link) location.assign(link.href);
  }
});

// ── time ────────────────────────────────────────────────────────────────────────────────────────

const UNITS = [["d", 86400], ["h", 3600], ["min", 60]];

function span(seconds) {
  for (const [unit, length] of UNITS) {
    if (seconds >= 2 * length || (seconds >= length && seconds % length === 0)) {
      return `${Math.floor(seconds / length)} ${unit}`;
    }
  }
  return `${seconds} s`;
}

function ago(at) {
  const passed = Math.round((Date.now() - at) / 1000);
  if (Math.abs(passed) < 5) return "now";
  return passed > 0 ? `${span(passed)} ago` : `in ${span(-passed)}`;
}

function clock(seconds) {
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  const two = (n) => String(n).padStart(2, "0");
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

let soakDue = 0; // when the current wave's last soak ends, according to the grid

function tick() {
  for (const element of all("time[data-ago]")) {
    const text = ago(Date.parse(element.dateTime));
    if (element.textContent !== text) element.textContent = text;
  }
  for (const element of all("time[data-soak]")) {
    const left = Math.ceil((soakDue - Date.now()) / 1000);
    element.hidden = !(soakDue && left > 0);
    if (left > 0) element.textContent = clock(left);
    if (soakDue) element.title = `soak ends ${new Date(soakDue).toISOString().replace("T", " ").slice(0, 19)} UTC`;
  }
}
setInterval(tick, 1000);

// ── the live mark ───────────────────────────────────────────────────────────────────────────────

const QUIET_MS = 25000; // the server sends a message at least every 10 s
const tide = one("#tide");
const stream = one("#stream");
let lastMessageAt = Date.now();
let missed = false;

function mark(state) {
  if (!tide || tide.dataset.state === state) return;
  tide.dataset.state = state;
  one(".word", tide).textContent = state === "live" ? "Live" : "Stale";
}

function head(position, at) {
  lastMessageAt = Date.now();
  mark("live");
  one("[data-head]", tide).textContent = Number(position).toLocaleString("en-US");
  tide.title = `Log position as of ${at}`;
}

if (stream) {
  stream.addEventListener("head", (event) => {
    const [position, at] = event.detail.data.split(" ");
    head(position, at);
  });
  // The page does not change while a dialog is open. It catches up when the dialog closes.
  stream.addEventListener("tide", (event) => {
    if (!one("dialog[open]")) return;
    event.stopImmediatePropagation();
    missed = true;
  });
  document.addEventListener("close", () => missed && ((missed = false), htmx.trigger(stream, "tide")), true);
  stream.addEventListener("htmx:sse:after:connection", () => {
    lastMessageAt = Date.now();
    mark("live");
  });
  stream.addEventListener("htmx:sse:error", () => mark("stale"));
  stream.addEventListener("htmx:sse:close", () => mark("stale"));
  setInterval(() => Date.now() - lastMessageAt > QUIET_MS && !document.hidden && mark("stale"), 1000);
}
document.body.addEventListener("htmx:after:swap", tick);
// A failed reload leaves the page as it is. If the session has ended, go to the sign-in page.
document.body.addEventListener("htmx:response:error", (event) => {
  mark("stale");
  if (event.detail.ctx.response.status === 401) location.reload();
});

// ── the grid of hosts ───────────────────────────────────────────────────────────────────────────

const canvas = one("[data-grid]");
if (canvas) {
  const grid = new HostGrid(canvas, all(".legend button"), (due) => {
    soakDue = Math.max(soakDue, due);
    tick();
  });
  // Open the stream before loading the grid, so that no change is lost in between.
  stream?.addEventListener("hosts", (event) => grid.apply(event.detail.data));
  stream?.addEventListener("htmx:sse:after:connection", () => grid.load());
  setTimeout(() => grid.loaded || grid.loading || grid.load(), stream ? 1500 : 0);
  document.addEventListener("themechange", () => grid.recolour());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => grid.recolour());
  document.body.addEventListener("htmx:after:swap", () => grid.cards());
  window.hostGrid = grid; // for tests, which read how long a repaint took
}

// ── forms ───────────────────────────────────────────────────────────────────────────────────────

for (const field of all("[data-submits]")) {
  field.addEventListener("change", () => field.form.requestSubmit());
}

// The answer to a form: a reload shows the page, and does not send the form again.
if (document.body.dataset.address) history.replaceState(null, "", document.body.dataset.address);

const toast = one("[data-toast]");
if (toast) {
  setTimeout(() => toast.remove(), 6000);
  const url = new URL(location);
  for (const once of ["done", "min_position"]) url.searchParams.delete(once);
  history.replaceState(null, "", url);
}
tick();
