#!/usr/bin/env bash
set -e
cslc layout.csl --arch=wse2 --fabric-dims=17,12 --fabric-offsets=4,1 --params=width:10,height:10,reach:4,steps:6 -o out --memcpy --channels=1
cs_python run.py --name out
