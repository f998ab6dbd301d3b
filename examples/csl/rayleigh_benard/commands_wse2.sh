#!/usr/bin/env bash
set -e
cslc layout.csl --arch=wse2 --fabric-dims=19,3 --fabric-offsets=4,1 --params=width:12,height:1,n:10,steps:50 -o out --memcpy --channels=1
cs_python run.py --name out
