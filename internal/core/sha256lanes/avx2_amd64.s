#include "textflag.h"

// Eight messages side by side, as sixteen are in avx512_amd64.s. There are half as many registers here, so the schedule
// is in memory: W(t) at 32·(t mod 16) from R11, and the state before the block behind it.

// Where the parts of numbers begin. The constants are the first.
#define INITIAL 256
#define SWAP 288

#define A Y0
#define B Y1
#define C Y2
#define D Y3
#define E Y4
#define F Y5
#define G Y6
#define H Y7

// T1 = h + Σ1(e) + Ch(e,f,g) + K + W, with W in Y8; d += T1; h = T1 + Σ0(a) + Maj(a,b,c).
// Maj(a,b,c) = b ^ ((a^b) & (b^c)). The register bc holds b^c, and ab gets a^b: the next round's b^c.
#define ROUND(t, a, b, c, d, e, f, g, h, ab, bc) \
	VPBROADCASTD (4*t)(R8), Y9; \
	VPADDD       h, Y8, Y8; \
	VPADDD       Y9, Y8, Y8; \
	VPSRLD       $6, e, Y9; \
	VPSLLD       $26, e, Y10; \
	VPSRLD       $11, e, Y11; \
	VPSLLD       $21, e, Y12; \
	VPXOR        Y10, Y9, Y9; \
	VPSRLD       $25, e, Y13; \
	VPXOR        Y12, Y11, Y11; \
	VPSLLD       $7, e, Y10; \
	VPXOR        Y11, Y9, Y9; \
	VPXOR        Y10, Y13, Y13; \
	VPXOR        g, f, Y12; \
	VPXOR        Y13, Y9, Y9; \
	VPAND        e, Y12, Y12; \
	VPADDD       Y9, Y8, Y8; \
	VPXOR        g, Y12, Y12; \
	VPSRLD       $2, a, Y9; \
	VPADDD       Y12, Y8, Y8; \
	VPSLLD       $30, a, Y10; \
	VPADDD       Y8, d, d; \
	VPSRLD       $13, a, Y11; \
	VPXOR        Y10, Y9, Y9; \
	VPSLLD       $19, a, Y12; \
	VPSRLD       $22, a, Y13; \
	VPXOR        Y12, Y11, Y11; \
	VPSLLD       $10, a, Y10; \
	VPXOR        Y11, Y9, Y9; \
	VPXOR        Y10, Y13, Y13; \
	VPXOR        b, a, ab; \
	VPXOR        Y13, Y9, Y9; \
	VPAND        ab, bc, bc; \
	VPADDD       Y9, Y8, Y8; \
	VPXOR        b, bc, bc; \
	VPADDD       bc, Y8, h

// Y8 = W(t+16) = W(t) + σ0(W(t+1)) + W(t+9) + σ1(W(t+14)), and in place of W(t).
#define EXTEND(t) \
	VMOVDQA (32*((t+1)%16))(R11), Y9; \
	VMOVDQA (32*((t+14)%16))(R11), Y10; \
	VMOVDQA (32*t)(R11), Y8; \
	VPADDD  (32*((t+9)%16))(R11), Y8, Y8; \
	VPSRLD  $7, Y9, Y11; \
	VPSLLD  $25, Y9, Y12; \
	VPXOR   Y12, Y11, Y11; \
	VPSRLD  $18, Y9, Y12; \
	VPSLLD  $14, Y9, Y13; \
	VPXOR   Y13, Y12, Y12; \
	VPSRLD  $3, Y9, Y9; \
	VPXOR   Y12, Y11, Y11; \
	VPXOR   Y9, Y11, Y11; \
	VPADDD  Y11, Y8, Y8; \
	VPSRLD  $17, Y10, Y11; \
	VPSLLD  $15, Y10, Y12; \
	VPXOR   Y12, Y11, Y11; \
	VPSRLD  $19, Y10, Y12; \
	VPSLLD  $13, Y10, Y13; \
	VPXOR   Y13, Y12, Y12; \
	VPSRLD  $10, Y10, Y10; \
	VPXOR   Y12, Y11, Y11; \
	VPXOR   Y10, Y11, Y11; \
	VPADDD  Y11, Y8, Y8; \
	VMOVDQA Y8, (32*t)(R11)

#define LOAD_ROUND(t, a, b, c, d, e, f, g, h, ab, bc) \
	VMOVDQA (32*t)(R11), Y8; \
	ROUND(t, a, b, c, d, e, f, g, h, ab, bc)

#define EXTEND_ROUND(t, a, b, c, d, e, f, g, h, ab, bc) \
	EXTEND(t); \
	ROUND(t, a, b, c, d, e, f, g, h, ab, bc)

// Transposes 4x4 words inside each 128 bits of four registers.
#define TRANSPOSE_WORDS(r0, r1, r2, r3) \
	VPUNPCKLDQ  r1, r0, Y8; \
	VPUNPCKHDQ  r1, r0, Y9; \
	VPUNPCKLDQ  r3, r2, Y10; \
	VPUNPCKHDQ  r3, r2, Y11; \
	VPUNPCKLQDQ Y10, Y8, r0; \
	VPUNPCKHQDQ Y10, Y8, r1; \
	VPUNPCKLQDQ Y11, Y9, r2; \
	VPUNPCKHQDQ Y11, Y9, r3

// Transposes the 2x2 parts of 128 bits of two registers.
#define TRANSPOSE_PARTS(r0, r1) \
	VPERM2I128 $0x20, r1, r0, Y8; \
	VPERM2I128 $0x31, r1, r0, r1; \
	VMOVDQA    Y8, r0

// Transposes the 8x8 words of Y0 to Y7: word i of register j becomes word j of register i.
#define TRANSPOSE \
	TRANSPOSE_WORDS(Y0, Y1, Y2, Y3); \
	TRANSPOSE_WORDS(Y4, Y5, Y6, Y7); \
	TRANSPOSE_PARTS(Y0, Y4); \
	TRANSPOSE_PARTS(Y1, Y5); \
	TRANSPOSE_PARTS(Y2, Y6); \
	TRANSPOSE_PARTS(Y3, Y7)

// Loads half a block of the message at R9, whose words are big-endian, and goes on to the next message.
#define LOAD(w) \
	VMOVDQU (R9), w; \
	VPSHUFB Y14, w, w; \
	ADDQ    R10, R9

// Stores words 0 to 7 or 8 to 15 of the schedule, of the halves of blocks that begin at R9.
#define LOAD_HALF(at) \
	LOAD(Y0); \
	LOAD(Y1); \
	LOAD(Y2); \
	LOAD(Y3); \
	LOAD(Y4); \
	LOAD(Y5); \
	LOAD(Y6); \
	LOAD(Y7); \
	TRANSPOSE; \
	VMOVDQA Y0, (at+0)(R11); \
	VMOVDQA Y1, (at+32)(R11); \
	VMOVDQA Y2, (at+64)(R11); \
	VMOVDQA Y3, (at+96)(R11); \
	VMOVDQA Y4, (at+128)(R11); \
	VMOVDQA Y5, (at+160)(R11); \
	VMOVDQA Y6, (at+192)(R11); \
	VMOVDQA Y7, (at+224)(R11)

// Stores the hash of a message, whose words are big-endian, and goes on to the next message.
#define STORE(y) \
	VPSHUFB Y14, y, y; \
	VMOVDQU y, (DI); \
	ADDQ    $32, DI

// func sum8(hashes *[16][32]byte, messages *byte, blocks int, n *numbers)
TEXT ·sum8(SB), 0, $800-32
	MOVQ hashes+0(FP), DI
	MOVQ messages+8(FP), SI
	MOVQ blocks+16(FP), CX
	MOVQ n+24(FP), BX
	MOVQ CX, R10
	SHLQ $6, R10            // from one message to the next
	LEAQ 31(SP), R11
	ANDQ $~31, R11

	VPBROADCASTD (INITIAL+0)(BX), A
	VPBROADCASTD (INITIAL+4)(BX), B
	VPBROADCASTD (INITIAL+8)(BX), C
	VPBROADCASTD (INITIAL+12)(BX), D
	VPBROADCASTD (INITIAL+16)(BX), E
	VPBROADCASTD (INITIAL+20)(BX), F
	VPBROADCASTD (INITIAL+24)(BX), G
	VPBROADCASTD (INITIAL+28)(BX), H

block:
	VMOVDQA A, 512(R11)
	VMOVDQA B, 544(R11)
	VMOVDQA C, 576(R11)
	VMOVDQA D, 608(R11)
	VMOVDQA E, 640(R11)
	VMOVDQA F, 672(R11)
	VMOVDQA G, 704(R11)
	VMOVDQA H, 736(R11)

	VBROADCASTI128 SWAP(BX), Y14
	MOVQ           SI, R9
	LOAD_HALF(0)
	LEAQ           32(SI), R9
	LOAD_HALF(256)

	VMOVDQA 512(R11), A
	VMOVDQA 544(R11), B
	VMOVDQA 576(R11), C
	VMOVDQA 608(R11), D
	VMOVDQA 640(R11), E
	VMOVDQA 672(R11), F
	VMOVDQA 704(R11), G
	VMOVDQA 736(R11), H

	MOVQ  BX, R8
	VPXOR C, B, Y15
	LOAD_ROUND(0, A, B, C, D, E, F, G, H, Y14, Y15)
	LOAD_ROUND(1, H, A, B, C, D, E, F, G, Y15, Y14)
	LOAD_ROUND(2, G, H, A, B, C, D, E, F, Y14, Y15)
	LOAD_ROUND(3, F, G, H, A, B, C, D, E, Y15, Y14)
	LOAD_ROUND(4, E, F, G, H, A, B, C, D, Y14, Y15)
	LOAD_ROUND(5, D, E, F, G, H, A, B, C, Y15, Y14)
	LOAD_ROUND(6, C, D, E, F, G, H, A, B, Y14, Y15)
	LOAD_ROUND(7, B, C, D, E, F, G, H, A, Y15, Y14)
	LOAD_ROUND(8, A, B, C, D, E, F, G, H, Y14, Y15)
	LOAD_ROUND(9, H, A, B, C, D, E, F, G, Y15, Y14)
	LOAD_ROUND(10, G, H, A, B, C, D, E, F, Y14, Y15)
	LOAD_ROUND(11, F, G, H, A, B, C, D, E, Y15, Y14)
	LOAD_ROUND(12, E, F, G, H, A, B, C, D, Y14, Y15)
	LOAD_ROUND(13, D, E, F, G, H, A, B, C, Y15, Y14)
	LOAD_ROUND(14, C, D, E, F, G, H, A, B, Y14, Y15)
	LOAD_ROUND(15, B, C, D, E, F, G, H, A, Y15, Y14)
	MOVQ  $3, DX

rounds:
	ADDQ $64, R8
	EXTEND_ROUND(0, A, B, C, D, E, F, G, H, Y14, Y15)
	EXTEND_ROUND(1, H, A, B, C, D, E, F, G, Y15, Y14)
	EXTEND_ROUND(2, G, H, A, B, C, D, E, F, Y14, Y15)
	EXTEND_ROUND(3, F, G, H, A, B, C, D, E, Y15, Y14)
	EXTEND_ROUND(4, E, F, G, H, A, B, C, D, Y14, Y15)
	EXTEND_ROUND(5, D, E, F, G, H, A, B, C, Y15, Y14)
	EXTEND_ROUND(6, C, D, E, F, G, H, A, B, Y14, Y15)
	EXTEND_ROUND(7, B, C, D, E, F, G, H, A, Y15, Y14)
	EXTEND_ROUND(8, A, B, C, D, E, F, G, H, Y14, Y15)
	EXTEND_ROUND(9, H, A, B, C, D, E, F, G, Y15, Y14)
	EXTEND_ROUND(10, G, H, A, B, C, D, E, F, Y14, Y15)
	EXTEND_ROUND(11, F, G, H, A, B, C, D, E, Y15, Y14)
	EXTEND_ROUND(12, E, F, G, H, A, B, C, D, Y14, Y15)
	EXTEND_ROUND(13, D, E, F, G, H, A, B, C, Y15, Y14)
	EXTEND_ROUND(14, C, D, E, F, G, H, A, B, Y14, Y15)
	EXTEND_ROUND(15, B, C, D, E, F, G, H, A, Y15, Y14)
	DECQ DX
	JNZ  rounds

	VPADDD 512(R11), A, A
	VPADDD 544(R11), B, B
	VPADDD 576(R11), C, C
	VPADDD 608(R11), D, D
	VPADDD 640(R11), E, E
	VPADDD 672(R11), F, F
	VPADDD 704(R11), G, G
	VPADDD 736(R11), H, H

	ADDQ $64, SI
	DECQ CX
	JNZ  block

	TRANSPOSE
	VBROADCASTI128 SWAP(BX), Y14
	STORE(Y0)
	STORE(Y1)
	STORE(Y2)
	STORE(Y3)
	STORE(Y4)
	STORE(Y5)
	STORE(Y6)
	STORE(Y7)
	VZEROUPPER
	RET
