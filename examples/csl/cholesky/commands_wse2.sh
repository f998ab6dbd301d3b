#!/usr/bin/env bash
set -e
cslc layout.csl --arch=wse2 --fabric-dims=13,8 --fabric-offsets=4,1 --params=P:6,nt:4 -o out --memcpy --channels=1
cs_python run.py --name out
