module github.com/databus-suite/databus/bench

go 1.26.0
