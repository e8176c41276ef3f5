// Runs the coding agents of programs.js and writes what came of it to the table in docs/clients.md. One that is not
// installed keeps its rows, which say that it was not run: see ../../README.md. The exit status is 1 if a run failed. With
// arguments it runs the programs with these names only, and leaves the rows of others as they are.

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

const text = readFileSync(file, "utf8");
const [from, to] = [text.indexOf(begin), text.indexOf(end)];
if (from < 0 || to < from) throw new Error(`${file} has no place for the table`);
const before = text.slice(from, to).split("\n");
const only = process.argv.slice(2);
const versions = {};
const lines = ["| Program | Version | Configuration | Format | Checked | Passed |", "|---|---|---|---|---|---|"];
for (const { program, configuration, format, checked, run } of rows) {
  const row = (version, result) => `| ${program} | ${version} | ${configuration} | ${format} | ${checked} | ${result} |`;
  if (only.length > 0 && !only.includes(program)) {
    const same = (line) => line.startsWith(`| ${program} | `) && line.includes(` | ${configuration} | ${format} | ${checked} | `);
    lines.push(before.find(same) ?? row("", "not run"));
    continue;
  }
  const installed = isInstalled(program);
  versions[program] ??= installed ? await version(program) : "";
  const result = installed ? await resultOf(run) : "not run";
  lines.push(row(versions[program], result));
  console.log(lines.at(-1));
}

writeFileSync(file, `${text.slice(0, from + begin.length)}\n${lines.join("\n")}\n\n${text.slice(to)}`);
