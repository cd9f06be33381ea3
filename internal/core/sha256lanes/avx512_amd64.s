#include "textflag.h"

// Sixteen messages side by side: lane l of every register belongs to message l. A to H hold those words of the sixteen
// states, Z16 to Z31 sixteen words of the sixteen message schedules. The steps are those of FIPS 180-4, section 6.2.2.
// The schedule stays in registers: word t+16 takes the place of word t just before the round that needs it.

// Where the parts of numbers begin. The constants are the first.
#define INITIAL 256
#define SWAP 288

#define A Z0
#define B Z1
#define C Z2
#define D Z3
#define E Z4
#define F Z5
#define G Z6
#define H Z7

// T1 = h + Σ1(e) + Ch(e,f,g) + K + W; d += T1; h = T1 + Σ0(a) + Maj(a,b,c). No word moves to another register: the
// next round is called with the names shifted by one.
// 0x96 is the truth table of exclusive or of three, 0xCA that of "e ? f : g", 0xE8 that of the majority.
#define ROUND(t, w, a, b, c, d, e, f, g, h) \
	VPADDD.BCST (4*t)(R8), w, Z8; \
	VPRORD      $6, e, Z9; \
	VPRORD      $11, e, Z10; \
	VPRORD      $25, e, Z11; \
	VMOVDQA32   e, Z12; \
	VPADDD      h, Z8, Z8; \
	VPTERNLOGD  $0x96, Z9, Z10, Z11; \
	VPTERNLOGD  $0xCA, g, f, Z12; \
	VPADDD      Z12, Z8, Z8; \
	VPRORD      $2, a, Z13; \
	VPADDD      Z11, Z8, Z8; \
	VPRORD      $13, a, Z14; \
	VPRORD      $22, a, Z15; \
	VMOVDQA32   a, Z9; \
	VPTERNLOGD  $0x96, Z13, Z14, Z15; \
	VPTERNLOGD  $0xE8, c, b, Z9; \
	VPADDD      Z8, d, d; \
	VPADDD      Z15, Z9, Z9; \
	VPADDD      Z8, Z9, h

// W(t+16) = W(t) + σ0(W(t+1)) + W(t+9) + σ1(W(t+14)), in place of W(t).
#define EXTEND(w, w1, w9, w14) \
	VPRORD     $7, w1, Z8; \
	VPRORD     $18, w1, Z9; \
	VPSRLD     $3, w1, Z10; \
	VPRORD     $17, w14, Z11; \
	VPRORD     $19, w14, Z12; \
	VPSRLD     $10, w14, Z13; \
	VPADDD     w9, w, w; \
	VPTERNLOGD $0x96, Z8, Z9, Z10; \
	VPTERNLOGD $0x96, Z11, Z12, Z13; \
	VPADDD     Z10, w, w; \
	VPADDD     Z13, w, w

#define ROUNDS16 \
	ROUND(0, Z16, A, B, C, D, E, F, G, H); \
	ROUND(1, Z17, H, A, B, C, D, E, F, G); \
	ROUND(2, Z18, G, H, A, B, C, D, E, F); \
	ROUND(3, Z19, F, G, H, A, B, C, D, E); \
	ROUND(4, Z20, E, F, G, H, A, B, C, D); \
	ROUND(5, Z21, D, E, F, G, H, A, B, C); \
	ROUND(6, Z22, C, D, E, F, G, H, A, B); \
	ROUND(7, Z23, B, C, D, E, F, G, H, A); \
	ROUND(8, Z24, A, B, C, D, E, F, G, H); \
	ROUND(9, Z25, H, A, B, C, D, E, F, G); \
	ROUND(10, Z26, G, H, A, B, C, D, E, F); \
	ROUND(11, Z27, F, G, H, A, B, C, D, E); \
	ROUND(12, Z28, E, F, G, H, A, B, C, D); \
	ROUND(13, Z29, D, E, F, G, H, A, B, C); \
	ROUND(14, Z30, C, D, E, F, G, H, A, B); \
	ROUND(15, Z31, B, C, D, E, F, G, H, A)

#define EXTEND_ROUND(t, w, w1, w9, w14, a, b, c, d, e, f, g, h) \
	EXTEND(w, w1, w9, w14); \
	ROUND(t, w, a, b, c, d, e, f, g, h)

#define EXTEND_ROUNDS16 \
	EXTEND_ROUND(0, Z16, Z17, Z25, Z30, A, B, C, D, E, F, G, H); \
	EXTEND_ROUND(1, Z17, Z18, Z26, Z31, H, A, B, C, D, E, F, G); \
	EXTEND_ROUND(2, Z18, Z19, Z27, Z16, G, H, A, B, C, D, E, F); \
	EXTEND_ROUND(3, Z19, Z20, Z28, Z17, F, G, H, A, B, C, D, E); \
	EXTEND_ROUND(4, Z20, Z21, Z29, Z18, E, F, G, H, A, B, C, D); \
	EXTEND_ROUND(5, Z21, Z22, Z30, Z19, D, E, F, G, H, A, B, C); \
	EXTEND_ROUND(6, Z22, Z23, Z31, Z20, C, D, E, F, G, H, A, B); \
	EXTEND_ROUND(7, Z23, Z24, Z16, Z21, B, C, D, E, F, G, H, A); \
	EXTEND_ROUND(8, Z24, Z25, Z17, Z22, A, B, C, D, E, F, G, H); \
	EXTEND_ROUND(9, Z25, Z26, Z18, Z23, H, A, B, C, D, E, F, G); \
	EXTEND_ROUND(10, Z26, Z27, Z19, Z24, G, H, A, B, C, D, E, F); \
	EXTEND_ROUND(11, Z27, Z28, Z20, Z25, F, G, H, A, B, C, D, E); \
	EXTEND_ROUND(12, Z28, Z29, Z21, Z26, E, F, G, H, A, B, C, D); \
	EXTEND_ROUND(13, Z29, Z30, Z22, Z27, D, E, F, G, H, A, B, C); \
	EXTEND_ROUND(14, Z30, Z31, Z23, Z28, C, D, E, F, G, H, A, B); \
	EXTEND_ROUND(15, Z31, Z16, Z24, Z29, B, C, D, E, F, G, H, A)

// Transposes 4x4 words inside each 128 bits of four registers.
#define TRANSPOSE_WORDS(r0, r1, r2, r3, t0, t1, t2, t3) \
	VPUNPCKLDQ  r1, r0, t0; \
	VPUNPCKHDQ  r1, r0, t1; \
	VPUNPCKLDQ  r3, r2, t2; \
	VPUNPCKHDQ  r3, r2, t3; \
	VPUNPCKLQDQ t2, t0, r0; \
	VPUNPCKHQDQ t2, t0, r1; \
	VPUNPCKLQDQ t3, t1, r2; \
	VPUNPCKHQDQ t3, t1, r3

// Transposes the 4x4 parts of 128 bits of four registers.
#define TRANSPOSE_PARTS(r0, r1, r2, r3, t0, t1, t2, t3) \
	VSHUFI32X4 $0x44, r1, r0, t0; \
	VSHUFI32X4 $0xEE, r1, r0, t1; \
	VSHUFI32X4 $0x44, r3, r2, t2; \
	VSHUFI32X4 $0xEE, r3, r2, t3; \
	VSHUFI32X4 $0x88, t2, t0, r0; \
	VSHUFI32X4 $0xDD, t2, t0, r1; \
	VSHUFI32X4 $0x88, t3, t1, r2; \
	VSHUFI32X4 $0xDD, t3, t1, r3

// Transposes 16x16 words: word i of register j becomes word j of register i.
#define TRANSPOSE(r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12, r13, r14, r15, t0, t1, t2, t3) \
	TRANSPOSE_WORDS(r0, r1, r2, r3, t0, t1, t2, t3); \
	TRANSPOSE_WORDS(r4, r5, r6, r7, t0, t1, t2, t3); \
	TRANSPOSE_WORDS(r8, r9, r10, r11, t0, t1, t2, t3); \
	TRANSPOSE_WORDS(r12, r13, r14, r15, t0, t1, t2, t3); \
	TRANSPOSE_PARTS(r0, r4, r8, r12, t0, t1, t2, t3); \
	TRANSPOSE_PARTS(r1, r5, r9, r13, t0, t1, t2, t3); \
	TRANSPOSE_PARTS(r2, r6, r10, r14, t0, t1, t2, t3); \
	TRANSPOSE_PARTS(r3, r7, r11, r15, t0, t1, t2, t3)

// Loads a block of the message at R9, whose words are big-endian, and goes on to the next message.
#define LOAD(w) \
	VMOVDQU32 (R9), w; \
	VPSHUFB   Z8, w, w; \
	ADDQ      R10, R9

// Stores the hash of a message, whose words are big-endian, and goes on to the next message.
#define STORE(z, y) \
	VPSHUFB Z20, z, z; \
	VMOVDQU y, (DI); \
	ADDQ    $32, DI

// func sum16(hashes *[16][32]byte, messages *byte, blocks int, n *numbers)
TEXT ·sum16(SB), 0, $512-32
	MOVQ hashes+0(FP), DI
	MOVQ messages+8(FP), SI
	MOVQ blocks+16(FP), CX
	MOVQ n+24(FP), BX
	MOVQ CX, R10
	SHLQ $6, R10            // from one message to the next

	VPBROADCASTD (INITIAL+0)(BX), A
	VPBROADCASTD (INITIAL+4)(BX), B
	VPBROADCASTD (INITIAL+8)(BX), C
	VPBROADCASTD (INITIAL+12)(BX), D
	VPBROADCASTD (INITIAL+16)(BX), E
	VPBROADCASTD (INITIAL+20)(BX), F
	VPBROADCASTD (INITIAL+24)(BX), G
	VPBROADCASTD (INITIAL+28)(BX), H

block:
	VMOVDQU32 A, 0(SP)
	VMOVDQU32 B, 64(SP)
	VMOVDQU32 C, 128(SP)
	VMOVDQU32 D, 192(SP)
	VMOVDQU32 E, 256(SP)
	VMOVDQU32 F, 320(SP)
	VMOVDQU32 G, 384(SP)
	VMOVDQU32 H, 448(SP)

	MOVQ            BX, R8
	VBROADCASTI32X4 SWAP(BX), Z8
	MOVQ            SI, R9
	LOAD(Z16)
	LOAD(Z17)
	LOAD(Z18)
	LOAD(Z19)
	LOAD(Z20)
	LOAD(Z21)
	LOAD(Z22)
	LOAD(Z23)
	LOAD(Z24)
	LOAD(Z25)
	LOAD(Z26)
	LOAD(Z27)
	LOAD(Z28)
	LOAD(Z29)
	LOAD(Z30)
	LOAD(Z31)
	TRANSPOSE(Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31, Z8, Z9, Z10, Z11)

	ROUNDS16
	MOVQ $3, DX

rounds:
	ADDQ $64, R8
	EXTEND_ROUNDS16
	DECQ DX
	JNZ  rounds

	VPADDD 0(SP), A, A
	VPADDD 64(SP), B, B
	VPADDD 128(SP), C, C
	VPADDD 192(SP), D, D
	VPADDD 256(SP), E, E
	VPADDD 320(SP), F, F
	VPADDD 384(SP), G, G
	VPADDD 448(SP), H, H

	ADDQ $64, SI
	DECQ CX
	JNZ  block

	// The words of a hash are the first half of each transposed register; whatever is in Z8 to Z15 goes to the other.
	TRANSPOSE(Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15, Z16, Z17, Z18, Z19)
	VBROADCASTI32X4 SWAP(BX), Z20
	STORE(Z0, Y0)
	STORE(Z1, Y1)
	STORE(Z2, Y2)
	STORE(Z3, Y3)
	STORE(Z4, Y4)
	STORE(Z5, Y5)
	STORE(Z6, Y6)
	STORE(Z7, Y7)
	STORE(Z8, Y8)
	STORE(Z9, Y9)
	STORE(Z10, Y10)
	STORE(Z11, Y11)
	STORE(Z12, Y12)
	STORE(Z13, Y13)
	STORE(Z14, Y14)
	STORE(Z15, Y15)
	VZEROUPPER
	RET
