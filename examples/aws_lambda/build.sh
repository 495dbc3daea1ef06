#!/bin/sh
# Make the folder `package`: all that Lambda needs, for Python 3.13 on x86-64. SHOAL is where shoal is.
set -eu
cd "$(dirname "$0")"
python3 -m pip wheel --quiet --no-deps --wheel-dir dist "${SHOAL:-../..}"
python3 -m pip install --quiet --upgrade --target package --no-compile --only-binary=:all: \
  --python-version 3.13 --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 \
  "$(echo dist/shoal-*.whl)[redis,postgres]"
cp scraper.py package/
