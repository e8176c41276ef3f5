# units.py: u.Units() of a Usage is UnitsOf(u), in what the mover does not type-check.
import re,subprocess
for f in subprocess.check_output("git grep -lE '\\.Units\\(\\)' -- '*.go'",shell=True,text=True).split():
    s=o=open(f).read()
    if re.search(r'^package llmhttp$',s,re.M): continue
    def fix(m):
        x=m.group(1)
        return f'llmhttp.UnitsOf({"*" if x=="reply.Usage" else ""}{x})'
    s=re.sub(r'((?:llm(?:http)?\.Usage\{[^}]*\})|(?:\b[\w.]+(?:\([\d, ]*\))?))\.Units\(\)',fix,s)
    if f=='console/helpers_test.go':
        s=re.sub(r'Units: (llm(?:http)?\.Usage\{\n)',r'Units: llmhttp.UnitsOf(\1',s).replace('\t\t}.Units(),','\t\t}),')
    if f=='settle_test.go': s=s.replace('UnitsOf(tt.want)','UnitsOf(*tt.want)')
    if s!=o: open(f,'w').write(s)
