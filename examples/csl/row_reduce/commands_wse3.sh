#!/usr/bin/env bash
set -e
cslc layout.csl --arch=wse3 --fabric-dims=11,5 --fabric-offsets=4,1 --params=width:4,height:3,n:8 -o out --memcpy --channels=1
cs_python run.py --name out
