"use strict";
// Regions that scroll can be reached by keyboard: tables and outputs that Sphinx wrote get what ours have.
document.addEventListener("DOMContentLoaded", () => {
  for (const box of document.querySelectorAll(".bd-article pre, .bd-article table:not(.wide table), .bd-article .pst-scrollable-table-container")) {
    box.tabIndex = 0;
  }
});
