#!/bin/sh
# Says whether every item has a code, a name, a count and a price.
awk -F, '
    NR > 1 && (NF != 4 || $3 !~ /^[0-9]+$/ || $4 !~ /^[0-9]+\.[0-9][0-9]$/) { print "line " NR ": " $0; bad = 1 }
    END { if (!bad) print NR - 1 " items, all sound"; exit bad }
' data/items.csv
