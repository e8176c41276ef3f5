// Runs the coding agents of programs.js. One that is not installed is skipped: see ../../README.md.

import { test } from "node:test";
import { programs, rows } from "./programs.js";

for (const { program, configuration, format, run } of rows) {
  test(`${program}, ${configuration}, ${format}`, { skip: programs[program].path ? false : "not installed" }, run);
}
