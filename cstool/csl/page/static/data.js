// The numbers of the page: deflated varints, as cstool/csl/page/coding.py writes them.

/** Bytes of a text in base64, inflated. */
async function inflated(text) {
  const raw = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Reads columns of numbers, one behind the other. */
class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  next() {
    let number = 0;
    let scale = 1;
    for (;;) {
      const byte = this.bytes[this.at++];
      number += (byte & 127) * scale;
      if (byte < 128) return number;
      scale *= 128;
    }
  }

  plain(count) {
    const found = new Float64Array(count);
    for (let i = 0; i < count; i++) found[i] = this.next();
    return found;
  }

  differences(count) {
    const found = new Float64Array(count);
    for (let i = 0, last = 0; i < count; i++) {
      const folded = this.next();
      last += folded % 2 ? -(folded + 1) / 2 : folded / 2;
      found[i] = last;
    }
    return found;
  }

  rising(counts) {
    const found = new Float64Array(counts.reduce((sum, count) => sum + count, 0));
    let at = 0;
    for (const count of counts) {
      for (let i = 0, last = 0; i < count; i++) found[at++] = last += this.next();
    }
    return found;
  }

  rest() {
    return this.bytes.subarray(this.at);
  }
}

/** Tracks of one kind: see cstool/csl/page/tracks.py. */
class Tracks {
  constructor(reader, [tracks, rows, keys, values]) {
    this.keys = Array.from({ length: keys }, () => reader.differences(tracks));
    const counts = reader.plain(tracks);
    this.samples = reader.rising(counts);
    this.values = Array.from({ length: values }, () => reader.plain(rows));
    this.starts = new Int32Array(tracks + 1);
    counts.forEach((count, track) => (this.starts[track + 1] = this.starts[track] + count));
    this.size = tracks;
    this.hints = [new Int32Array(tracks), new Int32Array(tracks)]; // rows found last: the next ones are near
    this.sums = null;
    this.byPe = new Map();
    for (let track = 0; track < tracks; track++) {
      const pe = this.keys[0][track];
      if (!this.byPe.has(pe)) this.byPe.set(pe, []);
      this.byPe.get(pe).push(track);
    }
  }

  of(pe) {
    return this.byPe.get(pe) ?? [];
  }

  /** The last row of a track at or before a sample; -1 for none. `hint`: which of the rows found last is near. */
  row(track, sample, hint = 0) {
    const { samples } = this;
    const hints = this.hints[hint];
    const first = this.starts[track];
    const behind = this.starts[track + 1];
    let low = first;
    let high = behind;
    // While the run plays, it is the row found last, or one of the next two.
    let near = first + hints[track];
    if (near < behind && samples[near] <= sample) {
      for (let tries = 0; tries < 3; tries++, near++) {
        if (near + 1 === behind || samples[near + 1] > sample) {
          hints[track] = near - first;
          return near;
        }
      }
      low = near;
    }
    while (low < high) {
      const middle = (low + high) >> 1;
      if (samples[middle] <= sample) low = middle + 1;
      else high = middle;
    }
    if (low === first) return -1;
    hints[track] = low - 1 - first;
    return low - 1;
  }

  /** The row of a track of spans that covers a sample; -1 for none. The first value of a span is its samples. */
  covering(track, sample) {
    const row = this.row(track, sample);
    return row >= 0 && sample < this.samples[row] + this.values[0][row] ? row : -1;
  }

  /** Sums of the first value up to and with each row, from the first of all. */
  summed() {
    if (this.sums === null) {
      this.sums = new Float64Array(this.samples.length + 1);
      for (let i = 0; i < this.samples.length; i++) this.sums[i + 1] = this.sums[i] + this.values[0][i];
    }
    return this.sums;
  }

  /** The sum of the first value over samples from to to, both of them among them. */
  total(track, from, to) {
    const sums = this.summed();
    const start = this.starts[track];
    const last = Math.max(this.row(track, to), start - 1);
    if (last < start || this.samples[last] < from) return 0;
    const before = from <= 0 ? -1 : this.row(track, from - 1, 1);
    return sums[last + 1] - sums[before < 0 ? start : before + 1];
  }

  /** Samples from from to to, both among them, that spans of a track cover. */
  covered(track, from, to) {
    return this.coveredBefore(track, to + 1, 0) - this.coveredBefore(track, from, 1);
  }

  coveredBefore(track, sample, hint) {
    const row = this.row(track, sample - 1, hint);
    if (row < 0) return 0;
    const sums = this.summed();
    const whole = sums[row] - sums[this.starts[track]];
    return whole + Math.min(this.values[0][row], sample - this.samples[row]);
  }
}
