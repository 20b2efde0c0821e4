#!/bin/sh
# makes venvs/ (and promptfoo/) from PyPI and npm: all of them, or those named:  ./setup.sh ours evaldeck limits
set -e
cd "$(dirname "$0")"
wanted=" ${*:-ours evaldeck inspect pydantic_evals deepeval autoevals agentevals limits deps promptfoo} "
mk() {
    v=$1; shift
    case "$wanted" in *" $v "*) ;; *) return 0 ;; esac
    [ -x venvs/$v/bin/python ] || python3 -m venv venvs/$v
    venvs/$v/bin/pip install -q "$@"
}
mk ours ..
mk evaldeck evaldeck==0.1.5
mk inspect inspect-ai==0.3.285
mk pydantic_evals pydantic-evals==2.62.0
mk deepeval deepeval==4.3.1
mk autoevals autoevals==0.4.1
mk agentevals agentevals==0.0.9
mk limits orjson msgspec pyahocorasick ahocorasick_rs google-re2 hyperscan stringzilla pysimdjson jsonschema fastjsonschema jsonschema-rs
mk deps msgspec orjson pyyaml ruamel.yaml ryaml click typer rich pydantic attrs jsonschema fastjsonschema jsonschema-rs anyio pluggy jinja2
case "$wanted" in *" promptfoo "*)
    mkdir -p promptfoo && cd promptfoo
    [ -f package.json ] || npm init -y >/dev/null
    npm install promptfoo@0.121.20 --no-audit --no-fund --loglevel=error ;;
esac
