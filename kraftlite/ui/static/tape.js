// The states that can be gone back to: those of a recording, or the last ones that this page has heard.

const MAX_CHARS = 24 << 20;
const MAX_MS = 15 * 60000;

/** Make a value of the one before and what has changed (ui/replay.py); what stays is shared. */
export function changed(old, change) {
  if (change === null || change === undefined) return old;
  if (Array.isArray(change)) return change[0];
  if (change.i) {
    const found = old.slice();
    for (const [at, inner] of Object.entries(change.i)) found[at] = changed(old[at], inner);
    return found;
  }
  const found = { ...old };
  for (const [name, inner] of Object.entries(change.k || {})) found[name] = changed(old[name], inner);
  for (const name of change.x || []) delete found[name];
  return found;
}

/** The rows, of which those that say the same as before are the same objects. */
export function kept(before, rows) {
  const known = new Map(before.map((row) => [row.name, row]));
  return rows.map((row) => {
    const old = known.get(row.name);
    return old !== undefined && JSON.stringify(old) === JSON.stringify(row) ? old : row;
  });
}

class Moments {
  constructor() {
    this.times = [];
  }
  get begin() {
    return this.times.length ? this.times[0] : 0;
  }
  get end() {
    return this.times.length ? this.times[this.times.length - 1] : 0;
  }
  /** The last moment at or before a time; the first one where there is none. */
  index(ms) {
    let low = 0;
    let high = this.times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle] <= ms) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }
  /** The time of the next moment in a direction. */
  beside(ms, step) {
    const at = this.index(ms);
    const to = step < 0 && this.times[at] < ms ? at : at + step;
    return this.times[Math.max(0, Math.min(this.times.length - 1, to))];
  }
}

/** The moments of a recording. */
export class Tape extends Moments {
  constructor(frames) {
    super();
    this.values = [];
    let last = null;
    for (const [ms, change] of frames) {
      last = changed(last, change);
      this.times.push(ms);
      this.values.push(last);
    }
  }
  at(ms) {
    return this.values[this.index(ms)];
  }
}

/** The moments that were heard, as text, the newest MAX_MS of them and not more than MAX_CHARS. */
export class Heard extends Moments {
  constructor() {
    super();
    this.texts = [];
    this.chars = 0;
    this.parts = '{"rows":[],"matching":0}';
    this.last = { at: -1, value: null };
  }
  partitions(text) {
    this.parts = text;
    this.chars += text.length;
  }
  push(ms, text) {
    if (ms <= this.end) return; // the server's clock was set back
    this.times.push(ms);
    this.texts.push([text, this.parts]);
    this.chars += text.length;
    let gone = 0;
    while (gone < this.times.length - 2 && (this.chars > MAX_CHARS || ms - this.times[gone] > MAX_MS)) {
      this.chars -= this.texts[gone][0].length;
      if (this.texts[gone][1] !== this.texts[gone + 1][1]) this.chars -= this.texts[gone][1].length;
      gone += 1;
    }
    if (gone) {
      this.times.splice(0, gone);
      this.texts.splice(0, gone);
      this.last.at = -1;
    }
  }
  at(ms) {
    const at = this.index(ms);
    if (this.last.at !== at) this.last = { at, value: { state: JSON.parse(this.texts[at][0]), partitions: JSON.parse(this.texts[at][1]) } };
    return this.last.value;
  }
}
