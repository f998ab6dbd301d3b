// The chosen colours, set before anything is drawn. "" follows the system.
(function () {
  "use strict";
  try {
    const theme = localStorage.getItem("appliance-theme");
    if (theme === "light" || theme === "dark") {
      document.documentElement.dataset.theme = theme;
    }
  } catch {
    // no storage: the system's colours
  }
})();
