;; A good normalizer of one column, written by hand, with slots where tests put
;; bad code: what no compiler of a sane language would make. It answers 0 for
;; every record. A record of 1000 `!` is the poison: slots marked so are reached
;; only by a batch that holds one.
(module
  (memory (export "memory") (;memory;))

  ;; Where the next allocation goes; nothing is ever freed.
  (global $next (mut i32) (i32.const 8192))
  (global $poison (mut i32) (i32.const 0))

  ;; The manifest, at 96: `abi-guest` 1.0.0 with the column `n: uint32`, at 64.
  (data (i32.const 16) "abi-guest")
  (data (i32.const 32) "1.0.0")
  (data (i32.const 48) "n")
  (data (i32.const 64) "\30\00\00\00\01\00\00\00\01\00\00\00")
  (data (i32.const 96) "\10\00\00\00\09\00\00\00\20\00\00\00\05\00\00\00\10\00\00\00\09\00\00\00\40\00\00\00\01\00\00\00")

  (func $alloc (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (global.get $next))
    (global.set $next (i32.and (i32.const -16)
      (i32.add (i32.const 15) (i32.add (local.get $at) (local.get $size)))))
    ;; Memory beyond its end is asked for in one go.
    (block $fits
      (br_if $fits (i32.le_u (global.get $next) (i32.shl (memory.size) (i32.const 16))))
      (br_if $fits (i32.ne (i32.const -1) (memory.grow (i32.add (i32.const 1) (i32.shr_u
        (i32.sub (global.get $next) (i32.shl (memory.size) (i32.const 16)))
        (i32.const 16))))))
      (unreachable))
    (local.get $at))

  (func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32)
    (if (i32.ge_u (local.get $size) (i32.const 1000)) (then
      (;poisoned realloc;)
    ))
    (call $alloc (local.get $size)))

  (func (export "telecom:cdr/normalizer@1.0.0#describe") (result i32)
    (;describe;)
    (i32.const 96))

  ;; 128: twelve zeroes, which say `ok`.
  (func (export "telecom:cdr/normalizer@1.0.0#configure") (param i32 i32) (result i32)
    (;configure;)
    (i32.const 128))

  (func $look (param $data i32) (param $size i32)
    (local $end i32)
    (local.set $end (i32.add (local.get $data) (local.get $size)))
    (block $done
      (loop $next_byte
        (br_if $done (i32.ge_u (local.get $data) (local.get $end)))
        (if (i32.eq (i32.const 33) (i32.load8_u (local.get $data)))
          (then (global.set $poison (i32.const 1))))
        (local.set $data (i32.add (local.get $data) (i32.const 1)))
        (br $next_byte))))

  ;; A `list<result<admission, violation>>` of zeroes: all admitted, without key.
  (func (export "telecom:cdr/normalizer@1.0.0#admit")
    (param i32 i32) (param $data i32) (param $size i32) (param i32) (param $records i32) (result i32)
    (local $out i32)
    (call $look (local.get $data) (local.get $size))
    (local.set $out (call $alloc (i32.const 8)))
    (i32.store (local.get $out) (call $alloc (i32.mul (i32.const 28) (local.get $records))))
    (i32.store offset=4 (local.get $out) (local.get $records))
    (if (global.get $poison) (then
      (;poisoned admit;)
    ))
    (local.get $out))

  ;; An outcome of 24 bytes: rows (at 0), columns (at 8), rejections (at 16).
  ;; A column has 32: the case of its values (at 0), their list (at 4), and
  ;; whether there are nulls (at 20).
  (func (export "telecom:cdr/normalizer@1.0.0#normalize")
    (param i32 i32) (param $data i32) (param $size i32) (param i32) (param $records i32) (result i32)
    (local $out i32) (local $column i32) (local $row i32)
    (call $look (local.get $data) (local.get $size))
    (local.set $out (call $alloc (i32.const 24)))
    (local.set $column (call $alloc (i32.const 32)))
    (i32.store (local.get $out) (call $alloc (i32.mul (i32.const 4) (local.get $records))))
    (i32.store offset=4 (local.get $out) (local.get $records))
    (block $done
      (loop $next_row
        (br_if $done (i32.ge_u (local.get $row) (local.get $records)))
        (i32.store
          (i32.add (i32.load (local.get $out)) (i32.mul (i32.const 4) (local.get $row)))
          (local.get $row))
        (local.set $row (i32.add (local.get $row) (i32.const 1)))
        (br $next_row)))
    (i32.store offset=8 (local.get $out) (local.get $column))
    (i32.store offset=12 (local.get $out) (i32.const 1))
    (i32.store8 (local.get $column) (i32.const 1))
    (i32.store offset=4 (local.get $column) (call $alloc (i32.mul (i32.const 4) (local.get $records))))
    (i32.store offset=8 (local.get $column) (local.get $records))
    (if (global.get $poison) (then
      (;poisoned normalize;)
    ))
    (local.get $out))

  (func (export "cabi_post_telecom:cdr/normalizer@1.0.0#normalize") (param i32)
    (if (global.get $poison) (then
      (;poisoned cleaning-up;)
    )))

  (;more;)
)
