// Elements, and numbers as people read them.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element. Attributes: `text`, `onclick` and the like, `dataset`; null leaves one out. */
export function make(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** Make an element of a drawing. */
export function draw(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) {
      continue;
    }
    if (name === "text") {
      element.textContent = value;
    } else if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Do something when Enter is pressed in a field; whatever has the focus then does not get the key. */
export function onEnter(field, act) {
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      act();
    }
  });
}

/** Set the text of an element where it differs, so that what was selected stays selected. */
export function setText(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

/** 3 s, 4 min 05 s, 2 h 07 min, 3 d 4 h */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (number) => String(number).padStart(2, "0");
  if (whole < 60) {
    return `${whole} s`;
  }
  if (whole < 3600) {
    return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  }
  if (whole < 86400) {
    return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  }
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** The same in one unit: 3 s, 4 min, 2 h, 3 d */
export function shortDuration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 100) {
    return `${whole} s`;
  }
  if (whole < 100 * 60) {
    return `${Math.floor(whole / 60)} min`;
  }
  return whole < 48 * 3600 ? `${Math.floor(whole / 3600)} h` : `${Math.floor(whole / 86400)} d`;
}

/** A time of day, with the date where it is another day's. */
export function clock(seconds, now, withSeconds = true) {
  const when = new Date(seconds * 1000);
  const options = { hour: "2-digit", minute: "2-digit", hour12: false };
  if (withSeconds) {
    options.second = "2-digit";
  }
  const time = when.toLocaleTimeString("en-GB", options);
  if (now === undefined || when.toDateString() === new Date(now * 1000).toDateString()) {
    return time;
  }
  return `${when.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

/** Bytes in decimal units, as cstool writes them. */
export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  let value = count;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || value >= 99.95 ? 0 : 1;
  return `${value.toFixed(digits).replace(/\.0$/, "")} ${units[unit]}`;
}

export function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}

/** What tells a job from others in little room. */
export function shortName(name) {
  return name.replace(/^wsjob-/, "").slice(0, 6);
}

/** Numbers between two others at which an axis has a mark: 1, 2 or 5 times a power of ten apart. */
export function marks(low, high, most) {
  const rough = (high - low) / most;
  if (!(rough > 0)) {
    return [low];
  }
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999);
  const found = [];
  for (let number = Math.ceil(low / step - 1e-9); number * step <= high + step * 1e-9; number += 1) {
    found.push(Number((number * step).toPrecision(12)));
  }
  return found;
}
