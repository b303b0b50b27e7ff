// Draws a square per host, up to 100,000, into one image. A byte per host is its state.
// Changes are pairs of index and byte. They are painted at once; the image is drawn once a frame.

const NAMES_MAX = 2000;
// Room for the names of the waves: on a wide screen, on a narrower one, and on a phone.
const GUTTERS = [[900, 132], [520, 92], [0, 0]];

export class HostGrid {
  constructor(box, buttons, soaking) {
    this.box = box;
    this.canvas = box.querySelector("canvas");
    this.tip = box.querySelector(".host-tip");
    this.buttons = buttons;
    this.soaking = soaking;
    this.waves = box.dataset.waves.split(",").filter(Boolean).map(Number);
    this.waveNames = box.dataset.waveNames.split("\n");
    this.count = Number(box.dataset.hosts);
    this.bytes = new Uint8Array(this.count);
    this.position = 0;
    this.waiting = []; // changes that arrived before the grid was loaded
    this.only = new Set();
    this.names = new Map();
    this.at = -1;
    this.context = this.canvas.getContext("2d");
    this.painted = 0; // duration of the last repaint in milliseconds
    for (const button of buttons) button.addEventListener("click", () => this.filter(button));
    this.canvas.addEventListener("mousemove", (event) => this.hover(this.indexOf(event)));
    this.canvas.addEventListener("mouseleave", () => this.hover(-1));
    this.canvas.addEventListener("click", (event) => this.open(this.indexOf(event)));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.layout();
    new ResizeObserver(() => this.box.clientWidth !== this.width && this.layout()).observe(box);
  }

  // ── loading and changing ──

  async load() {
    this.loading = true;
    const answer = await fetch(this.box.dataset.grid, { headers: { accept: "application/octet-stream" } });
    this.loading = false;
    if (!answer.ok) return;
    const bytes = new Uint8Array(await answer.arrayBuffer());
    this.position = Number(answer.headers.get("tidegate-position"));
    const due = answer.headers.get("tidegate-soak-due");
    if (due) this.soaking(Date.parse(due));
    if (bytes.length !== this.count) return location.reload(); // not the plan that the page shows
    this.bytes = bytes;
    this.loaded = true;
    this.box.dataset.loaded = String(this.position);
    const waiting = this.waiting;
    this.waiting = [];
    waiting.forEach((data) => this.apply(data));
    this.repaint();
    performance.mark("grid");
  }

  // "<position> <soak due or -> <base64 of little-endian u32: index << 8 | byte>"
  apply(data) {
    if (this.loading || !this.loaded) return void this.waiting.push(data);
    const [position, due, packed] = data.split(" ");
    if (Number(position) <= this.position) return;
    this.position = Number(position);
    if (due !== "-") this.soaking(Date.parse(due));
    const raw = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
    const pairs = new Uint32Array(raw.buffer);
    for (const pair of pairs) {
      const index = pair >>> 8;
      this.bytes[index] = pair & 255;
      this.cell(index);
    }
    this.flush();
    this.counts();
  }

  counts() {
    const counts = new Uint32Array(16);
    for (const byte of this.bytes) counts[byte]++;
    for (const button of this.buttons) {
      const count = counts[Number(button.dataset.code)];
      button.querySelector(".number").textContent = count.toLocaleString("en-US");
      button.toggleAttribute("data-empty", !count);
    }
    this.cards();
  }

  // The cards of the waves show the same bytes as the squares, so they cannot disagree. The page
  // updates the words of a card; once the grid is loaded, this module draws its number and bar.
  cards() {
    if (!this.loaded) return;
    const buttons = [...this.buttons].sort((a, b) => a.dataset.place - b.dataset.place);
    let all = 0;
    this.starts.forEach(({ index, hosts }, wave) => {
      const counts = new Uint32Array(16);
      for (let at = index; at < index + hosts; at++) counts[this.bytes[at]]++;
      const done = buttons.reduce((sum, it) => sum + ("done" in it.dataset ? counts[it.dataset.code] : 0), 0);
      all += done;
      const figure = document.querySelector(`[data-wave-done="${wave}"]`);
      if (!figure) return;
      const text = `${done.toLocaleString("en-US")}/${hosts.toLocaleString("en-US")}`;
      if (figure.textContent !== text) figure.textContent = text;
      figure.dataset.drawn = "";
      this.bar(document.querySelector(`[data-wave-bar="${wave}"] svg`), buttons, counts, hosts, done);
    });
    const whole = document.querySelector("[data-hosts-done]");
    const text = all.toLocaleString("en-US");
    if (whole && whole.textContent !== text) whole.textContent = text;
    if (whole) whole.dataset.drawn = "";
  }

  bar(svg, buttons, counts, hosts, done) {
    let reached = 0;
    const parts = buttons
      .filter((it) => Number(it.dataset.code) && counts[it.dataset.code])
      .map((it) => {
        const part = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        const width = (counts[it.dataset.code] * 100) / hosts;
        const tone = [...it.classList].find((name) => name.startsWith("t-"));
        for (const [name, value] of [["class", tone], ["x", `${reached}%`], ["width", `${width}%`], ["height", "100%"]]) {
          part.setAttribute(name, value);
        }
        reached += width;
        return part;
      });
    svg.replaceChildren(...parts);
    svg.dataset.drawn = ""; // an update of the page skips it
    svg.setAttribute("aria-label", `${done} of ${hosts} done`);
  }

  filter(button) {
    const code = Number(button.dataset.code);
    const pressed = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(pressed));
    if (pressed) this.only.add(code);
    else this.only.delete(code);
    this.repaint();
  }

  // ── layout ──

  layout() {
    this.width = this.box.clientWidth;
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const gutter = this.waves.length > 1 ? GUTTERS.find(([width]) => this.width >= width)[1] : 0;
    const room = this.width - gutter;
    const most = Number({ small: 180, middle: 320, large: 520 }[this.box.dataset.size]);
    let pitch = 16;
    while (pitch > 2 && this.height(room, pitch) > most) pitch--;
    this.ratio = ratio;
    this.gutter = gutter;
    this.pitch = pitch;
    this.gap = pitch > 8 ? 2 : pitch > 3 ? 1 : 0;
    this.columns = Math.max(1, Math.floor(room / pitch));
    this.starts = [];
    let [index, y] = [0, 0];
    for (const hosts of this.waves) {
      this.starts.push({ index, y, hosts });
      index += hosts;
      y += Math.max(Math.ceil(hosts / this.columns) * pitch, gutter ? 16 : 0) + 8;
    }
    const height = Math.max(y - 8, 20);
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    this.image = this.context.createImageData(this.canvas.width, this.canvas.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.repaint();
  }

  height(room, pitch) {
    const columns = Math.max(1, Math.floor(room / pitch));
    return this.waves.reduce((sum, hosts) => sum + Math.ceil(hosts / columns) * pitch + 8, 0);
  }

  place(index) {
    let wave = this.starts.length - 1;
    while (wave > 0 && this.starts[wave].index > index) wave--;
    const start = this.starts[wave];
    const within = index - start.index;
    return {
      wave,
      x: this.gutter + (within % this.columns) * this.pitch,
      y: start.y + Math.floor(within / this.columns) * this.pitch,
    };
  }

  indexOf(event) {
    const x = event.offsetX - this.gutter;
    const column = Math.floor(x / this.pitch);
    if (x < 0 || column >= this.columns) return -1;
    for (const start of this.starts) {
      const row = Math.floor((event.offsetY - start.y) / this.pitch);
      const within = row * this.columns + column;
      if (row >= 0 && within >= 0 && within < start.hosts && row < Math.ceil(start.hosts / this.columns)) {
        return start.index + within;
      }
    }
    return -1;
  }

  // ── painting ──

  recolour() {
    this.colours = null;
    this.repaint();
  }

  palette() {
    if (this.colours) return;
    const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    this.colours = new Uint32Array(256);
    this.faint = new Uint32Array(256);
    for (const button of this.buttons) {
      const colour = getComputedStyle(button).getPropertyValue("--tone").trim();
      probe.fillStyle = colour;
      probe.fillRect(0, 0, 1, 1);
      const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
      const code = Number(button.dataset.code);
      this.colours[code] = (255 << 24) | (b << 16) | (g << 8) | r;
      this.faint[code] = (40 << 24) | (b << 16) | (g << 8) | r;
    }
    this.ink = getComputedStyle(document.documentElement).getPropertyValue("--ink-3").trim();
  }

  cell(index) {
    const { x, y } = this.place(index);
    const size = Math.max(1, Math.round((this.pitch - this.gap) * this.ratio));
    this.fill(Math.round(x * this.ratio), Math.round(y * this.ratio), size, this.bytes[index]);
  }

  fill(left, top, size, byte) {
    const width = this.image.width;
    const shown = !this.only.size || this.only.has(byte);
    const colour = (shown ? this.colours : this.faint)[byte];
    for (let row = top; row < top + size; row++) {
      const start = row * width + left;
      this.pixels.fill(colour, start, start + size);
    }
  }

  // Paints a row of squares: the first line of pixels is written, the others are copied from it.
  line(from, to, left, top, size, step) {
    const { pixels, bytes, colours, faint, only } = this;
    const width = this.image.width;
    const start = top * width + left;
    for (let index = from; index < to; index++) {
      const byte = bytes[index];
      const colour = only.size && !only.has(byte) ? faint[byte] : colours[byte];
      const x = start + Math.round((index - from) * step);
      for (let pixel = x; pixel < x + size; pixel++) pixels[pixel] = colour;
    }
    const end = start + Math.ceil((to - from) * step);
    for (let more = 1; more < size; more++) pixels.copyWithin(start + more * width, start, end);
  }

  repaint() {
    const began = performance.now();
    this.palette();
    this.pixels.fill(0);
    const size = Math.max(1, Math.round((this.pitch - this.gap) * this.ratio));
    const step = this.pitch * this.ratio;
    const left = Math.round(this.gutter * this.ratio);
    for (const { index, y, hosts } of this.starts) {
      for (let row = 0; row * this.columns < hosts; row++) {
        const from = index + row * this.columns;
        const to = Math.min(from + this.columns, index + hosts);
        this.line(from, to, left, Math.round(y * this.ratio + row * step), size, step);
      }
    }
    this.flushNow();
    this.counts();
    this.painted = performance.now() - began;
  }

  flush() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => this.flushNow());
  }

  flushNow() {
    this.frame = 0;
    this.context.putImageData(this.image, 0, 0);
    this.label();
    if (this.at >= 0) this.outline();
  }

  label() {
    if (!this.gutter) return;
    const { context, ratio } = this;
    context.font = `500 ${12 * ratio}px Inter, sans-serif`;
    context.fillStyle = this.ink;
    context.textBaseline = "top";
    this.starts.forEach(({ y }, wave) => {
      let text = `${wave + 1} · ${this.waveNames[wave]}`;
      while (text.length > 4 && context.measureText(text).width > (this.gutter - 12) * ratio) text = `${text.slice(0, -2)}…`;
      context.fillText(text, 0, (y + 1) * ratio);
    });
  }

  outline() {
    const { x, y } = this.place(this.at);
    const { context, ratio } = this;
    const size = this.pitch - this.gap;
    context.lineWidth = 2 * ratio;
    context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
    context.strokeRect((x - 1) * ratio, (y - 1) * ratio, (size + 2) * ratio, (size + 2) * ratio);
  }

  // ── details of one host ──

  hover(index) {
    if (index === this.at) return;
    this.at = index;
    this.flush();
    if (index < 0) {
      this.tip.style.visibility = "hidden";
      return;
    }
    const { wave, x, y } = this.place(index);
    const word = this.buttons.find((b) => Number(b.dataset.code) === this.bytes[index]);
    const state = word ? word.childNodes[2].textContent.trim() : "";
    const name = document.createElement("b");
    name.textContent = this.names.get(index) ?? "…";
    this.tip.replaceChildren(name, ` · ${state} · wave ${wave + 1} ${this.waveNames[wave]}`);
    this.tip.style.visibility = "visible";
    const left = Math.min(x + 14, this.width - this.tip.offsetWidth - 4);
    this.tip.style.transform = `translate(${Math.max(0, left)}px, ${y + this.pitch + 6}px)`;
    if (!this.names.has(index)) {
      clearTimeout(this.asking);
      this.asking = setTimeout(() => this.ask(index, name), 60);
    }
  }

  async ask(index, element) {
    const answer = await fetch(`${this.box.dataset.grid}/${index}`, { headers: { accept: "text/plain" } });
    if (!answer.ok) return;
    if (this.names.size > NAMES_MAX) this.names.clear();
    this.names.set(index, await answer.text());
    if (this.at === index) element.textContent = this.names.get(index);
  }

  async open(index) {
    if (index < 0) return;
    if (!this.names.has(index)) await this.ask(index, document.createElement("b"));
    if (this.names.has(index)) location.assign(`/hosts/${encodeURIComponent(this.names.get(index))}`);
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns }[event.key];
    if (step) {
      event.preventDefault();
      this.hover(Math.max(0, Math.min(this.count - 1, this.at + step)));
    } else if (event.key === "Enter") this.open(this.at);
    else if (event.key === "Escape") this.hover(-1);
  }
}
