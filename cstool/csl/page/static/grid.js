// The fabric as a grid: heat, links, and the routes of a color.

const SMALLEST = 1;
const LARGEST = 160;

class Grid {
  constructor(canvas, run, choose) {
    this.canvas = canvas;
    this.run = run;
    this.scale = 0; // pixels from PE to PE; 0: all of it fits
    this.left = this.top = 0;
    this.drag = null;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      this.drag = { x: event.offsetX, y: event.offsetY, left: this.left, top: this.top, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this.drag === null) return;
      const [dx, dy] = [event.offsetX - this.drag.x, event.offsetY - this.drag.y];
      if (!this.drag.moved && Math.hypot(dx, dy) < 4) return;
      this.drag.moved = true;
      [this.left, this.top] = [this.drag.left + dx, this.drag.top + dy];
      this.changed();
    });
    canvas.addEventListener("pointerup", (event) => {
      const { drag } = this;
      this.drag = null;
      if (drag === null || drag.moved) return;
      const pe = this.at(event.offsetX, event.offsetY);
      if (pe >= 0) choose(pe);
    });
    this.changed = () => {};
  }

  fit() {
    const { run, canvas } = this;
    this.scale = Math.min((canvas.clientWidth - 16) / run.width, (canvas.clientHeight - 16) / run.height, LARGEST);
    this.left = (canvas.clientWidth - this.scale * run.width) / 2;
    this.top = (canvas.clientHeight - this.scale * run.height) / 2;
    this.changed();
  }

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const scale = Math.min(LARGEST, Math.max(SMALLEST, this.scale * factor));
    this.left = x - ((x - this.left) * scale) / this.scale;
    this.top = y - ((y - this.top) * scale) / this.scale;
    this.scale = scale;
    this.changed();
  }

  at(x, y) {
    const [column, row] = [Math.floor((x - this.left) / this.scale), Math.floor((y - this.top) / this.scale)];
    const inside = column >= 0 && row >= 0 && column < this.run.width && row < this.run.height;
    return inside ? row * this.run.width + column : -1;
  }

  /** Move the view so that a PE is in it. */
  reveal(pe) {
    const { scale, canvas, run } = this;
    const [x, y] = [(pe % run.width) * scale + this.left, Math.floor(pe / run.width) * scale + this.top];
    if (x < 0) this.left -= x - 8;
    if (y < 0) this.top -= y - 8;
    if (x + scale > canvas.clientWidth) this.left -= x + scale - canvas.clientWidth + 8;
    if (y + scale > canvas.clientHeight) this.top -= y + scale - canvas.clientHeight + 8;
  }

  /** Draw a sample. `view`: sample, from (first sample of the window), heat, color (-1: none), pe, colours. */
  draw(view) {
    if (this.scale === 0) this.fit();
    const { run, scale } = this;
    const { context, width, height } = prepared(this.canvas);
    const { found, most } = run.heat(view.heat, view.from, view.sample);
    const gap = scale >= 24 ? scale * 0.16 : scale >= 6 ? 1 : 0;
    const first = [Math.max(0, Math.floor(-this.left / scale)), Math.max(0, Math.floor(-this.top / scale))];
    const last = [
      Math.min(run.width - 1, Math.floor((width - this.left) / scale)),
      Math.min(run.height - 1, Math.floor((height - this.top) / scale)),
    ];
    const shades = Array.from({ length: 101 }, (_, percent) => css(shade(view.colours, percent / 100)));
    const empty = css(view.colours.raised);
    for (let y = first[1]; y <= last[1]; y++) {
      for (let x = first[0]; x <= last[0]; x++) {
        const pe = y * run.width + x;
        context.fillStyle = run.tiles[pe] < 0 ? empty : shades[Math.round(100 * found[pe])];
        context.fillRect(this.left + x * scale + gap, this.top + y * scale + gap, scale - 2 * gap, scale - 2 * gap);
      }
    }
    if (scale >= 5) this.drawLinks(context, view, first, last);
    if (view.color >= 0 && scale >= 5) this.drawRoutes(context, view, first, last);
    if (scale >= 34) {
      for (let y = first[1]; y <= last[1]; y++) {
        for (let x = first[0]; x <= last[0]; x++) this.label(context, view, y * run.width + x, x, y, found);
      }
    }
    context.lineWidth = Math.min(3, Math.max(2, scale / 16));
    context.strokeStyle = css(view.colours.text);
    const [x, y] = [view.pe % run.width, Math.floor(view.pe / run.width)];
    context.strokeRect(this.left + x * scale + gap / 2, this.top + y * scale + gap / 2, scale - gap, scale - gap);
    return most;
  }

  label(context, view, pe, x, y, heat) {
    const { run, scale } = this;
    const ground = run.tiles[pe] < 0 ? view.colours.raised : shade(view.colours, heat[pe]);
    context.fillStyle = css(ink(ground));
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = `${Math.min(13, scale / 4.4)}px system-ui, sans-serif`;
    const middle = this.left + (x + 0.5) * scale;
    context.fillText(run.shortName(pe), middle, this.top + (y + 0.27) * scale);
    const mark = run.waitsAt(pe, view.sample).length > 0 ? "waits" : run.task(pe, view.sample) !== null ? "task" : "";
    if (mark !== "") context.fillText(mark, middle, this.top + (y + 0.75) * scale);
  }

  /** The middle of a PE, or of its side at a port, in pixels; aside: moved to the right of the way out. */
  spot(pe, port, out, aside) {
    const { run, scale } = this;
    const [dx, dy] = STEP[port];
    return [
      this.left + ((pe % run.width) + 0.5 + dx * out - dy * aside) * scale,
      this.top + (Math.floor(pe / run.width) + 0.5 + dy * out + dx * aside) * scale,
    ];
  }

  /** Bars between the PEs in view: the more wavelets on a link, the wider. */
  drawLinks(context, view, first, last) {
    const links = [];
    let most = 1;
    for (let y = first[1]; y <= last[1]; y++) {
      for (let x = first[0]; x <= last[0]; x++) {
        const pe = y * this.run.width + x;
        this.run.links(pe, view.from, view.sample, view.color).forEach((count, port) => {
          if (port === 0 || count === 0) return;
          links.push([pe, port, count]);
          most = Math.max(most, count);
        });
      }
    }
    for (const [pe, port, count] of links) {
      context.strokeStyle = css(view.colours.wavelet, 0.55 + (0.45 * count) / most);
      context.lineWidth = Math.max(1.5, Math.min(7, this.scale * 0.07) * (0.4 + (0.6 * count) / most));
      context.beginPath();
      context.moveTo(...this.spot(pe, port, 0.3, 0.1));
      context.lineTo(...this.spot(pe, port, 0.7, 0.1));
      context.stroke();
    }
  }

  /** Routes of a color, above a wider line in the colour of the ground: they stand out from any heat. */
  drawRoutes(context, view, first, last) {
    const width = Math.min(3, Math.max(1, this.scale * 0.045));
    for (const isHalo of [true, false]) {
      context.lineWidth = isHalo ? width + 3 : width;
      for (let y = first[1]; y <= last[1]; y++) {
        for (let x = first[0]; x <= last[0]; x++) this.drawRoute(context, view, y * this.run.width + x, isHalo);
      }
    }
  }

  drawRoute(context, view, pe, isHalo) {
    const { run, scale } = this;
    const route = run.route(pe, view.color, view.sample);
    if (route === null) return;
    const paint = (name) => (context.strokeStyle = context.fillStyle = css(view.colours[isHalo ? "panel" : name]));
    paint("route");
    const middle = this.spot(pe, 0, 0, 0);
    for (let port = 1; port < 5; port++) {
      const beside = run.beside(pe, port);
      const other = beside < 0 ? null : run.route(beside, view.color, view.sample);
      const meets = (ports) => beside < 0 || (other !== null && Boolean((other[ports] >> OPPOSITE[port]) & 1));
      if ((route.rx >> port) & 1) {
        context.setLineDash(meets("tx") ? [] : [4, 4]);
        this.stroke(context, this.spot(pe, port, 0.5, -0.1), middle);
        context.setLineDash([]);
      }
      if ((route.tx >> port) & 1) {
        paint(meets("rx") ? "route" : "waiting");
        this.arrow(context, middle, this.spot(pe, port, 0.5, 0.1));
        paint("route");
      }
    }
    const radius = Math.min(6, Math.max(1.5, scale * 0.07)) + (isHalo ? 1.5 : 0);
    if (route.rx & 1) this.circle(context, middle, radius, true);
    if (route.tx & 1) this.circle(context, middle, Math.min(6, Math.max(1.5, scale * 0.07)) * 1.7, false);
    if (route.positions > 1 && scale >= 34 && !isHalo) {
      const [x, y] = this.spot(pe, 0, 0, 0);
      context.font = `bold ${Math.min(13, scale / 5)}px system-ui, sans-serif`;
      context.lineWidth = 3;
      context.strokeStyle = css(view.colours.panel);
      context.strokeText(String(route.position), x + 0.3 * scale, y + 0.3 * scale);
      context.fillText(String(route.position), x + 0.3 * scale, y + 0.3 * scale);
      context.lineWidth = Math.min(3, Math.max(1, scale * 0.045));
    }
  }

  circle(context, [x, y], radius, isFull) {
    context.beginPath();
    context.arc(x, y, radius, 0, 7);
    if (isFull) context.fill();
    else context.stroke();
  }

  stroke(context, from, to) {
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
  }

  arrow(context, from, to) {
    this.stroke(context, from, to);
    const angle = Math.atan2(to[1] - from[1], to[0] - from[0]);
    const size = Math.min(11, Math.max(2.5, this.scale * 0.11));
    context.beginPath();
    context.moveTo(...to);
    for (const side of [-0.5, 0.5]) {
      context.lineTo(to[0] - size * Math.cos(angle + side), to[1] - size * Math.sin(angle + side));
    }
    context.fill();
  }
}
