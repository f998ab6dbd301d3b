#!/usr/bin/env bash
set -e
cslc layout.csl --arch=wse2 --fabric-dims=15,3 --fabric-offsets=4,1 --params=n:32,width:8 -o out --memcpy --channels=1
cs_python run.py --name out
