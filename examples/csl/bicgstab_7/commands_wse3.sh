#!/usr/bin/env bash
set -e
cslc layout.csl --arch=wse3 --fabric-dims=12,7 --fabric-offsets=4,1 --params=width:5,height:5,n:16,steps:8 -o out --memcpy --channels=1
cs_python run.py --name out
