#!/usr/bin/env bash
set -e
cslc layout.csl --arch=wse3 --fabric-dims=16,7 --fabric-offsets=4,1 --params=width:9,height:5,n:24,block:12,steps:7 -o out --memcpy --channels=1
cs_python run.py --name out
