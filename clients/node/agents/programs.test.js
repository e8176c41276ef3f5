// Runs the coding agents of programs.js. One that is not installed is skipped: see ../../README.md.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isInstalled, rows } from "./programs.js";

for (const { program, configuration, format, run } of rows) {
  test(`${program}, ${configuration}, ${format}`, { skip: isInstalled(program) ? false : "not installed" }, run);
}

/** Returns the text of a file of the repository. */
const read = (file) => readFileSync(join(import.meta.dirname, "../../..", file), "utf8");

test("the table in docs/clients.md has the runs, and README.md the programs", () => {
  const table = read("docs/clients.md").split("\n").filter((line) => line.startsWith("| ")).map((line) => line.split("|").map((cell) => cell.trim()));
  const readme = /## Clients\n(.*?)\n## /s.exec(read("README.md"))[1];
  for (const { program, configuration, format, checked } of rows) {
    const found = table.some((cells) => [program, configuration, format, checked].every((cell, i) => cells[[1, 3, 4, 5][i]] === cell));
    assert(found, `npm run table: no row for ${program}, ${configuration}, ${format}, ${checked}`);
    assert.match(readme, new RegExp(`^\\| .*\\b${program}\\b`, "m"));
  }
});
