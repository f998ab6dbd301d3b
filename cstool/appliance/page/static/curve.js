// The loss of a job over its steps.

import { draw, make, marks, setText } from "./words.js";

const HEIGHT = 190;
const TOP = 10;
const BOTTOM = 26;
const LEFT = 48;
const RIGHT = 14;

export class Curve {
  constructor() {
    this.svg = draw("svg", { class: "curve", role: "img", height: HEIGHT });
    this.said = make("p", { class: "muted small readout" });
    this.element = make("div", { class: "curve-box" }, this.svg, this.said);
    this.data = null;
    this.pointed = null;
    new ResizeObserver(() => this.redraw()).observe(this.element);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => {
      this.pointed = null;
      this.redraw();
    });
  }

  show(data) {
    this.data = data;
    this.redraw();
  }

  redraw() {
    const width = Math.floor(this.element.clientWidth);
    if (this.data === null || width < 50) {
      return;
    }
    const { steps, losses } = this.data;
    const known = losses.filter((loss) => loss !== null);
    this.svg.toggleAttribute("hidden", known.length === 0);
    if (known.length === 0) {
      setText(this.said, steps.length ? "No loss is a number." : "No step is in the log yet.");
      return;
    }
    let [low, high] = [Math.min(...known), Math.max(...known)];
    const margin = (high - low) * 0.05 || Math.abs(high) * 0.05 || 1;
    [low, high] = [low - margin, high + margin];
    const [first, last] = [steps[0], Math.max(steps[steps.length - 1], steps[0] + 1)];
    const x = (step) => LEFT + ((step - first) / (last - first)) * (width - LEFT - RIGHT);
    const y = (loss) => TOP + ((high - loss) / (high - low)) * (HEIGHT - TOP - BOTTOM);
    this.frame = { x, y };
    const parts = [];
    for (const mark of marks(low, high, 5)) {
      parts.push(
        draw("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(mark), y2: y(mark) }),
        draw("text", { x: LEFT - 6, y: y(mark) + 4, "text-anchor": "end", text: brief(mark) }),
      );
    }
    for (const mark of marks(first, last, Math.max(3, Math.floor(width / 60)))) {
      if (Number.isInteger(mark)) {
        const anchor = x(mark) > width - 40 ? "end" : "middle";
        parts.push(draw("text", { x: anchor === "end" ? width - RIGHT : x(mark), y: HEIGHT - 8, "text-anchor": anchor, text: mark.toLocaleString("en") }));
      }
    }
    let path = "";
    let pen = "M";
    steps.forEach((step, at) => {
      if (losses[at] === null) {
        pen = "M";
        parts.push(draw("line", { class: "bad", x1: x(step), x2: x(step), y1: HEIGHT - BOTTOM - 8, y2: HEIGHT - BOTTOM }));
      } else {
        path += `${pen}${x(step).toFixed(1)} ${y(losses[at]).toFixed(1)}`;
        pen = "L";
      }
    });
    parts.push(draw("path", { class: "line", d: path }));
    const end = losses.findLastIndex((loss) => loss !== null);
    const shown = this.pointed === null ? end : this.nearest(this.pointed);
    if (shown !== end) {
      parts.push(draw("line", { class: "pointed", x1: x(steps[shown]), x2: x(steps[shown]), y1: TOP, y2: HEIGHT - BOTTOM }));
    }
    if (losses[shown] !== null) {
      parts.push(draw("circle", { cx: x(steps[shown]), cy: y(losses[shown]), r: 3.5 }));
    }
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(...parts);
    const lowest = known.reduce((least, loss) => Math.min(least, loss), Infinity);
    const where = steps[losses.indexOf(lowest)];
    const words = [
      `step ${steps[shown].toLocaleString("en")}: loss ${losses[shown] === null ? "is no number" : losses[shown].toPrecision(5)}`,
      `lowest ${lowest.toPrecision(5)} at step ${where.toLocaleString("en")}`,
    ];
    if (known.length < losses.length) {
      words.push("red marks: the loss was no number");
    }
    setText(this.said, words.join("; "));
    this.svg.setAttribute("aria-label", `Loss over steps ${first} to ${last}. ${words.join("; ")}`);
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    this.pointed = event.clientX - box.left;
    this.redraw();
  }

  nearest(at) {
    const distances = this.data.steps.map((step) => Math.abs(this.frame.x(step) - at));
    return distances.indexOf(Math.min(...distances));
  }
}

/** A number on an axis. */
function brief(number) {
  const text = String(Number(number.toPrecision(4)));
  return text.length <= 6 ? text : number.toExponential(1);
}
