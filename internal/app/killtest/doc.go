// Package killtest kills the real binary under load, again and again, and then proves that every acknowledged fact is there
// exactly once. It holds a test and nothing that a program could import.
package killtest
