#!/usr/bin/env bash
set -e
cslc layout.csl --arch=wse3 --fabric-dims=13,8 --fabric-offsets=4,1 --params=width:6,height:6,n:24,steps:20 -o out --memcpy --channels=1
cs_python run.py --name out
