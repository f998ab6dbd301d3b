// The switch of the colours: those of the system, light, dark.

const THEMES = { "": "as the system", light: "light", dark: "dark" };

/** Have a button switch the colours, and say which they are. */
export function switchColours(button) {
  showTheme(button);
  button.addEventListener("click", () => nextTheme(button));
}

function showTheme(button) {
  const theme = document.documentElement.dataset.theme ?? "";
  button.textContent = `Colours: ${THEMES[theme]}`;
}

function nextTheme(button) {
  const root = document.documentElement;
  const names = Object.keys(THEMES);
  const theme = names[(names.indexOf(root.dataset.theme ?? "") + 1) % names.length];
  if (theme === "") {
    delete root.dataset.theme;
  } else {
    root.dataset.theme = theme;
  }
  try {
    localStorage.setItem("appliance-theme", theme);
  } catch {
    // until the page is loaded again
  }
  showTheme(button);
}
