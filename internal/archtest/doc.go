// Package archtest holds the house rules of the source tree as tests: who may import whom, what the core may not do,
// package comments, file lengths, names and what tests may not contain.
//
// Each rule is a function from a parsed tree to its findings. It is run over this repository and over small trees in
// memory that break it, because a rule that cannot fail guards nothing. The package reads source text only: it never
// runs the go command, so it costs a fraction of a second, and nothing but tests uses it.
//
// Rules about imports, purity and floats look at files that are not tests: a test may reach across floors to check one
// part against another.
package archtest
