#!/usr/bin/env bash
set -e
cslc layout.csl --arch=wse2 --fabric-dims=11,6 --fabric-offsets=4,1 --params=width:4,height:4,n:1024,capacity:80,kept:32 -o out --memcpy --channels=1
cs_python run.py --name out
