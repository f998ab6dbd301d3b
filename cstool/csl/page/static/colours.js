// The colours: those of the system, light, dark; and their values for canvases.

const THEMES = { "": "as the system", light: "light", dark: "dark" };
const THEME_KEY = "cstool-run-theme";

/** Have a button switch the colours, and say which they are; changed() is called after each switch. */
function switchColours(button, changed) {
  const root = document.documentElement;
  const show = () => (button.textContent = `Colours: ${THEMES[root.dataset.theme ?? ""]}`);
  try {
    const kept = localStorage.getItem(THEME_KEY);
    if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  } catch {
    // no storage: the system's colours
  }
  show();
  button.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    const theme = names[(names.indexOf(root.dataset.theme ?? "") + 1) % names.length];
    if (theme === "") delete root.dataset.theme;
    else root.dataset.theme = theme;
    try {
      localStorage.setItem(THEME_KEY, theme);
    } catch {
      // until the page is loaded again
    }
    show();
    changed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
}

/** Values of the colours of page.css, by name, as they are now: [red, green, blue]. */
function coloursNow() {
  const probe = document.createElement("span");
  document.body.append(probe);
  const found = {};
  const names = "panel raised line text muted accent cold warm hot task operation waiting wavelet route on-bar here";
  for (const name of names.split(" ")) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  }
  probe.remove();
  return found;
}

const css = ([red, green, blue], alpha = 1) => `rgb(${red} ${green} ${blue} / ${alpha})`;

/** A shade of heat from 0 to 1: cold, warm, hot. */
function shade(colours, heat) {
  const [from, to, share] =
    heat < 0.5 ? [colours.cold, colours.warm, heat * 2] : [colours.warm, colours.hot, heat * 2 - 1];
  return from.map((part, i) => Math.round(part + (to[i] - part) * share));
}

function luminance(colour) {
  const [red, green, blue] = colour.map((part) => ((part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Black or white: the one that stands out more on a ground. */
const ink = (ground) => (luminance(ground) > 0.179 ? [0, 0, 0] : [255, 255, 255]);

/** A canvas made as large as it is shown; its context draws in pixels of CSS. */
function prepared(canvas, height = canvas.clientHeight) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  if (canvas.style.height !== `${height}px` && height !== canvas.clientHeight) canvas.style.height = `${height}px`;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}
