// The work of one PE over time, and the activity of all of them.

const LANE = 22;
const LABEL = 108;
const AXIS = 20;

/** Draw the lanes of a PE. `view`: pe, sample, colours; from and to: samples. Returns the number of lanes. */
function drawTimeline(canvas, run, view, from, to) {
  const lanes = lanesOf(run, view.pe);
  const { context, width, height } = prepared(canvas, lanes.length * LANE + AXIS);
  const scale = (width - LABEL - 4) / Math.max(1, to - from);
  const x = (sample) => LABEL + (sample - from) * scale;
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.textAlign = "left";
  lanes.forEach((lane, at) => {
    const top = at * LANE;
    context.fillStyle = css(view.colours.muted);
    context.fillText(lane.label, 0, top + LANE / 2, LABEL - 6);
    context.fillStyle = css(view.colours.line);
    context.fillRect(LABEL, top + LANE - 1, width - LABEL, 1);
    for (const track of lane.tracks) drawTrack(context, run, view, lane, track, top, from, to, x, width);
  });
  drawAxis(context, run, view, from, to, x, width, lanes.length * LANE);
  if (view.sample >= from && view.sample <= to) {
    context.fillStyle = css(view.colours.text);
    context.fillRect(Math.round(x(view.sample)), 0, 1.5, height - AXIS + 4);
  }
  return lanes.length;
}

function lanesOf(run, pe) {
  const lanes = [{ label: "tasks", kind: "task", tracks: run.tasks.of(pe) }];
  const threads = run.ops.of(pe).map((track) => [run.words[run.ops.keys[1][track]], track]);
  for (const [thread, track] of threads.sort(([one], [other]) => one.localeCompare(other))) {
    lanes.push({ label: thread === "main" ? "main thread" : thread, kind: "operation", tracks: [track] });
  }
  for (const track of run.waits.of(pe)) {
    const [, act, queue, color] = run.waits.keys.map((key) => key[track]);
    const label = `${run.acts[act]}, color ${color}`;
    const same = lanes.find((lane) => lane.label === label);
    if (same) same.tracks.push(track);
    else lanes.push({ label, kind: "waiting", queue, tracks: [track] });
  }
  const hops = run.hops.of(pe);
  for (let port = 0; port < 5; port++) {
    const tracks = hops.filter((track) => run.hops.keys[1][track] === port);
    if (tracks.length > 0) lanes.push({ label: port === 0 ? "to the PE" : `to the ${PORTS[port]}`, kind: "wavelet", tracks });
  }
  return lanes;
}

function drawTrack(context, run, view, lane, track, top, from, to, x, width) {
  const tracks = { task: run.tasks, operation: run.ops, waiting: run.waits, wavelet: run.hops }[lane.kind];
  const isCount = lane.kind === "wavelet";
  const colour = view.colours[lane.kind];
  const first = Math.max(tracks.starts[track], tracks.row(track, from));
  let painted = -1; // bars thinner than a pixel are drawn once
  for (let row = first; row < tracks.starts[track + 1]; row++) {
    const begin = tracks.samples[row];
    if (begin > to) break;
    const end = isCount ? begin + 1 : begin + tracks.values[0][row];
    if (end <= from) continue;
    const [left, right] = [Math.max(LABEL, x(begin)), Math.min(width, x(end))];
    if (right <= painted) continue;
    painted = Math.max(right, left + 1);
    context.fillStyle = css(colour, isCount ? 0.8 : 1);
    const thin = lane.kind === "waiting" ? 7 : 3;
    context.fillRect(left, top + thin, Math.max(1, right - left - (right - left > 4 ? 1 : 0)), LANE - 2 * thin);
    if (isCount || lane.kind === "waiting" || right - left < 30) continue;
    const name = run.words[tracks.values[2][row]];
    const text = lane.kind === "task" ? name : `@${name}`;
    context.fillStyle = css(view.colours["on-bar"]);
    context.save();
    context.beginPath();
    context.rect(left, top, right - left - 2, LANE);
    context.clip();
    context.fillText(text, left + 4, top + LANE / 2 + 1);
    context.restore();
  }
}

function drawAxis(context, run, view, from, to, x, width, top) {
  const cycles = Math.max(1, (to - from) * run.every);
  const rough = cycles / Math.max(2, (width - LABEL) / 90);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, power * [1, 2, 5, 10].find((each) => each * power >= rough));
  context.fillStyle = css(view.colours.muted);
  context.textAlign = "center";
  for (let cycle = Math.ceil((from * run.every) / step) * step; cycle <= to * run.every; cycle += step) {
    const at = x(cycle / run.every);
    if (at > width - 24) break;
    context.fillRect(at, top, 1, 4);
    context.fillText(cycle.toLocaleString("en"), at, top + 12);
  }
  context.textAlign = "left";
}

/** Draw the share of PEs with a task over the whole run, and where the shown cycle is. */
function drawActivity(canvas, run, view, shares) {
  const { context, width, height } = prepared(canvas);
  const x = (sample) => 8 + (sample / Math.max(1, run.lastSample)) * (width - 16);
  context.fillStyle = css(view.colours.raised);
  context.fillRect(8, 0, width - 16, height);
  context.fillStyle = css(view.colours.task);
  shares.forEach((share, part) => {
    const left = 8 + (part / shares.length) * (width - 16);
    context.fillRect(left, height - share * (height - 2), (width - 16) / shares.length + 0.3, share * (height - 2));
  });
  context.fillStyle = css(view.colours.text);
  context.fillRect(x(view.sample) - 0.75, 0, 1.5, height);
}
