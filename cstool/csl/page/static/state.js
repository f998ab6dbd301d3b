// What the fabric does at a sample: tasks, operations, waits, routes, and who waits for whom.

const PORTS = ["RAMP", "WEST", "EAST", "NORTH", "SOUTH"];
const STEP = [[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]];
const OPPOSITE = [0, 2, 1, 4, 3];
const OWN = 255;
const LONGEST_CHAIN = 24;
const MOST_ENDS = 512;

class Run {
  constructor(about, bytes) {
    Object.assign(this, about);
    const reader = new Reader(bytes);
    this.tiles = reader.differences(this.width * this.height);
    this.routes = new Map();
    for (const color of this.colors) this.routes.set(color, reader.differences(this.width * this.height));
    for (const [name, shape] of this.tables) this[name] = new Tracks(reader, shape);
    this.memory = reader.rest();
    this.turned = new Map(); // track of turns by PE and color
    for (let track = 0; track < this.turns.size; track++) {
      this.turned.set(this.turns.keys[0][track] * 32 + this.turns.keys[1][track], track);
    }
    this.lastSample = this.samples - 1;
    this._memoryStarts = null;
  }

  name(pe) {
    return `PE ${this.shortName(pe)}`;
  }

  shortName(pe) {
    return `${(pe % this.width) + this.origin[0]}.${Math.floor(pe / this.width) + this.origin[1]}`;
  }

  /** The PE of a text "x.y"; -1 for none. */
  named(text) {
    const found = /^\s*(?:PE\s+)?(\d+)\.(\d+)\s*$/i.exec(text);
    if (found === null) return -1;
    const [x, y] = [found[1] - this.origin[0], found[2] - this.origin[1]];
    return x >= 0 && y >= 0 && x < this.width && y < this.height ? y * this.width + x : -1;
  }

  cycle(sample) {
    return Math.min(sample * this.every, this.end);
  }

  program(pe) {
    return this.tiles[pe] < 0 ? null : this.programs[this.tiles[pe]];
  }

  beside(pe, port) {
    const [x, y] = [(pe % this.width) + STEP[port][0], Math.floor(pe / this.width) + STEP[port][1]];
    return x >= 0 && y >= 0 && x < this.width && y < this.height ? y * this.width + x : -1;
  }

  // --- a PE at a sample ---

  task(pe, sample) {
    for (const track of this.tasks.of(pe)) {
      const row = this.tasks.covering(track, sample);
      if (row >= 0) return { name: this.words[this.tasks.values[2][row]], begin: this.tasks.samples[row] };
    }
    return null;
  }

  operations(pe, sample) {
    const found = [];
    for (const track of this.ops.of(pe)) {
      const row = this.ops.covering(track, sample);
      if (row < 0) continue;
      found.push({
        thread: this.words[this.ops.keys[1][track]],
        name: this.words[this.ops.values[2][row]],
        place: this.ops.values[3][row],
        begin: this.ops.samples[row],
      });
    }
    return found;
  }

  waitsAt(pe, sample) {
    const found = [];
    for (const track of this.waits.of(pe)) {
      const row = this.waits.covering(track, sample);
      if (row < 0) continue;
      const [, act, queue, color] = this.waits.keys.map((key) => key[track]);
      found.push({ act: this.acts[act], queue, color, begin: this.waits.samples[row] });
    }
    return found;
  }

  /** The number of the place that a PE's task is in; -1 for none. */
  line(pe, sample) {
    if (this.task(pe, sample) === null) return -1;
    for (const track of this.lines.of(pe)) {
      const row = this.lines.row(track, sample);
      if (row >= 0) return this.lines.values[0][row];
    }
    return -1;
  }

  fill(pe, isOutput, queue, color, sample) {
    for (const track of this.fills.of(pe)) {
      const [, output, number, own] = this.fills.keys.map((key) => key[track]);
      if (output !== isOutput || number !== queue || (queue === OWN && own !== color)) continue;
      const row = this.fills.row(track, sample);
      return row < 0 ? 0 : this.fills.values[0][row];
    }
    return 0;
  }

  capacity(isOutput, queue) {
    return queue === OWN ? this.own_queue : this.queues[isOutput][queue] ?? 0;
  }

  /** The route of a color at a router: rx, tx, position, positions; null for none. */
  route(pe, color, sample) {
    const number = this.routes.has(color) ? this.routes.get(color)[pe] : -1;
    const config = number < 0 ? null : this.configs[number];
    const track = this.turned.get(pe * 32 + color);
    const row = track === undefined ? -1 : this.turns.row(track, sample);
    if (row >= 0) {
      const [rx, tx, position] = this.turns.values.map((value) => value[row]);
      return { rx, tx, position, positions: config === null ? 1 : config[0].length };
    }
    if (config === null) return null;
    const [positions, current, teardown] = config;
    const [rx, tx] = teardown ? [0, 0] : positions[current] ?? [0, 0];
    return { rx, tx, position: current, positions: positions.length };
  }

  colorsOf(pe) {
    const found = new Set();
    for (const [color, table] of this.routes) if (table[pe] >= 0) found.add(color);
    for (const track of this.turns.of(pe)) found.add(this.turns.keys[1][track]);
    return [...found].sort((one, other) => one - other);
  }

  // --- who waits for whom ---

  /** PEs that the wavelets of a color at a PE come from (or, with forth, go to), by the routes of a sample. */
  ends(pe, color, sample, forth) {
    const found = [];
    const seen = new Set([pe * 2]);
    const open = [pe];
    let starting = true;
    while (open.length > 0 && found.length < MOST_ENDS) {
      const at = open.shift();
      const route = this.route(at, color, sample);
      const began = starting;
      starting = false;
      if (route === null) continue;
      const ports = forth ? route.tx : route.rx;
      if (began && !((forth ? route.rx : route.tx) & 1)) continue;
      for (let port = 0; port < 5; port++) {
        if (!((ports >> port) & 1)) continue;
        if (port === 0) {
          if (!found.includes(at)) found.push(at);
          continue;
        }
        const next = this.beside(at, port);
        if (next < 0 || seen.has(next * 2)) continue;
        const other = this.route(next, color, sample);
        if (other === null || !(((forth ? other.rx : other.tx) >> OPPOSITE[port]) & 1)) continue;
        seen.add(next * 2);
        open.push(next);
      }
    }
    return found;
  }

  /** Steps of the chain of waits from a PE on: text, pe, isWait; it ends where nothing waits, or comes round. */
  chain(pe, sample) {
    const steps = [];
    const seen = new Set();
    let among = "";
    while (steps.length < LONGEST_CHAIN) {
      const [wait] = this.waitsAt(pe, sample);
      if (seen.has(pe)) {
        steps.push({ pe, text: `${among}and so round in a circle`, isWait: true });
        return steps;
      }
      seen.add(pe);
      if (wait === undefined) {
        steps.push({ pe, text: among + this.does(pe, sample), isWait: false });
        return steps;
      }
      const forth = wait.act !== "starved";
      const others = this.ends(pe, wait.color, sample, forth).filter((other) => other !== pe || !forth);
      steps.push({ pe, text: among + this.waitText(wait), isWait: true });
      if (others.length === 0) {
        const what = forth ? "no PE takes this color by the routes of now" : "no PE sends this color by the routes of now";
        steps.push({ pe: -1, text: what, isWait: true });
        return steps;
      }
      // The one that waits itself, if there is one: it is what everything stands behind.
      pe = others.find((other) => this.waitsAt(other, sample).length > 0 && other !== pe) ?? others[0];
      among = others.length > 1 ? `(one of ${others.length} PEs there) ` : "";
    }
    return steps;
  }

  waitText({ act, queue, color, begin }) {
    const which = queue === OWN ? "the color's own queue" : `queue ${queue}`;
    const since = `since cycle ${this.cycle(begin).toLocaleString("en")}`;
    if (act === "starved") return `waits for wavelets of color ${color} (input ${which}) ${since}`;
    if (act === "full") return `waits for room in output ${which}, color ${color}, ${since}`;
    return `its router has no room for color ${color} (output ${which}) ${since}`;
  }

  /** What a PE does, in words. */
  does(pe, sample) {
    if (this.tiles[pe] < 0) return "has no program";
    const task = this.task(pe, sample);
    const operations = this.operations(pe, sample);
    const work = operations.map((each) => `@${each.name} on ${each.thread}`);
    if (task !== null) work.unshift(`runs task ${task.name}`);
    return work.length === 0 ? "is idle" : work.join(", ");
  }

  // --- all PEs ---

  /** Heat of each PE over samples from to to: 0 to 1, and the largest amount behind 1. */
  heat(kind, from, to) {
    const found = new Float32Array(this.width * this.height);
    const span = to - from + 1;
    if (kind === "wavelets") {
      for (let track = 0; track < this.hops.size; track++) {
        found[this.hops.keys[0][track]] += this.hops.total(track, from, to);
      }
      const most = found.reduce((high, each) => Math.max(high, each), 0);
      if (most > 0) for (let pe = 0; pe < found.length; pe++) found[pe] /= most;
      return { found, most };
    }
    const tracks = kind === "task" ? this.tasks : this.waits;
    for (let track = 0; track < tracks.size; track++) {
      found[tracks.keys[0][track]] += tracks.covered(track, from, to) / span;
    }
    for (let pe = 0; pe < found.length; pe++) found[pe] = Math.min(1, found[pe]);
    return { found, most: 1 };
  }

  /** Wavelets that left a PE by each port over samples; of one color, or of all (-1). */
  links(pe, from, to, color) {
    const found = [0, 0, 0, 0, 0];
    const [, ports, colors] = this.hops.keys;
    for (const track of this.hops.of(pe)) {
      if (color < 0 || colors[track] === color) found[ports[track]] += this.hops.total(track, from, to);
    }
    return found;
  }

  /** Numbers of PEs with a task, and that wait, and the wavelets on links, of a sample. */
  counts(sample) {
    const found = { tasks: 0, waits: 0, wavelets: 0 };
    for (let track = 0; track < this.tasks.size; track++) found.tasks += this.tasks.covering(track, sample) >= 0;
    const waiting = new Set();
    for (let track = 0; track < this.waits.size; track++) {
      if (this.waits.covering(track, sample) >= 0) waiting.add(this.waits.keys[0][track]);
    }
    found.waits = waiting.size;
    for (let track = 0; track < this.hops.size; track++) {
      if (this.hops.keys[1][track] !== 0) found.wavelets += this.hops.total(track, sample, sample);
    }
    return found;
  }

  /** Share of PEs with a task, by part of the run: [parts]. */
  activity(parts) {
    const found = new Float64Array(parts + 1);
    const scale = parts / this.samples;
    for (let row = 0; row < this.tasks.samples.length; row++) {
      const from = this.tasks.samples[row] * scale;
      const to = Math.min(parts, from + this.tasks.values[0][row] * scale);
      for (let part = Math.floor(from); part < to; part++) found[part] += Math.min(to, part + 1) - Math.max(from, part);
    }
    const pes = this.tiles.reduce((sum, tile) => sum + (tile >= 0), 0);
    return Array.from(found.subarray(0, parts), (each) => Math.min(1, each / Math.max(1, pes)));
  }

  // --- variables ---

  /** Variables of a PE at the end of the run: name, type, count, value(i). */
  variables(pe) {
    if (this.memory.length === 0 || this.tiles[pe] < 0) return [];
    if (this._memoryStarts === null) {
      const sizes = this.variables_of.map((each) => each.reduce((sum, [, letter, count]) => sum + TYPES[letter][1] * count, 0));
      let at = 0;
      this._memoryStarts = Array.from(this.tiles, (tile) => {
        const start = at;
        at += tile < 0 ? 0 : sizes[tile];
        return start;
      });
    }
    const view = new DataView(this.memory.buffer, this.memory.byteOffset, this.memory.byteLength);
    let at = this._memoryStarts[pe];
    return this.variables_of[this.tiles[pe]].map(([name, letter, count]) => {
      const [type, size, read] = TYPES[letter];
      const start = at;
      at += size * count;
      return { name, type, count, value: (i) => read(view, start + i * size) };
    });
  }
}

function half(view, at) {
  const bits = view.getUint16(at, true);
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const part = bits & 1023;
  if (exponent === 31) return part ? NaN : sign * Infinity;
  return sign * (exponent === 0 ? part * 2 ** -24 : (1 + part / 1024) * 2 ** (exponent - 15));
}

const TYPES = {
  w: ["u32", 4, (view, at) => view.getUint32(at, true)],
  i: ["i32", 4, (view, at) => view.getInt32(at, true)],
  f: ["f32", 4, (view, at) => view.getFloat32(at, true)],
  H: ["u16", 2, (view, at) => view.getUint16(at, true)],
  h: ["i16", 2, (view, at) => view.getInt16(at, true)],
  e: ["f16", 2, half],
  B: ["u8", 1, (view, at) => view.getUint8(at)],
  b: ["i8", 1, (view, at) => view.getInt8(at)],
};
