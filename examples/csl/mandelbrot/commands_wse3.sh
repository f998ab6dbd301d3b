#!/usr/bin/env bash
set -e
cslc layout.csl --arch=wse3 --fabric-dims=15,8 --fabric-offsets=4,1 --params=width:8,height:6,rows:12,columns:12,limit:40 -o out --memcpy --channels=1
cs_python run.py --name out
