// Runs the coding agents of programs.js and writes what came of it to the table in docs/clients.md. One that is not
// installed keeps its rows, which say that it was not run: see ../../README.md. The exit status is 1 if a run failed.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isInstalled, rows, version } from "./programs.js";

const file = join(import.meta.dirname, "../../../docs/clients.md");
const begin = "<!-- written by clients/node/agents/table.js -->\n";
const end = "<!-- end -->\n";

/** Does a run, and returns its result. What the run leaves to be done after it is done in reverse order. */
async function resultOf(run) {
  const cleanups = [];
  try {
    await run({ after: (f) => cleanups.unshift(f) });
    return "yes";
  } catch (error) {
    console.error(error);
    process.exitCode = 1;
    return "**no**";
  } finally {
    for (const cleanup of cleanups) await cleanup();
  }
}

const versions = {};
const lines = ["| Program | Version | Configuration | Format | Checked | Passed |", "|---|---|---|---|---|---|"];
for (const { program, configuration, format, checked, run } of rows) {
  const installed = isInstalled(program);
  versions[program] ??= installed ? await version(program) : "";
  const result = installed ? await resultOf(run) : "not run";
  lines.push(`| ${program} | ${versions[program]} | ${configuration} | ${format} | ${checked} | ${result} |`);
  console.log(lines.at(-1));
}

const text = readFileSync(file, "utf8");
const [from, to] = [text.indexOf(begin), text.indexOf(end)];
if (from < 0 || to < from) throw new Error(`${file} has no place for the table`);
writeFileSync(file, `${text.slice(0, from + begin.length)}\n${lines.join("\n")}\n\n${text.slice(to)}`);
