#!/usr/bin/env bash
# timed.sh FILE NAME COMMAND... runs a command, and appends a line to FILE: the seconds that it took, those of
# CPU time as user and as system, a tab, and NAME or, if that is "-", the directory.
set -u
TIMEFORMAT="%R %U %S	${2/#-/$PWD}"
{ time "${@:3}" 2>&3 3>&-; } 3>&2 2>>"$1"
