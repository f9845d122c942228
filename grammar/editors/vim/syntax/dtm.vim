" Vim syntax file of dtm programs. Words are those of grammar/keywords.def and compiler/types/dtype.h.
if exists("b:current_syntax")
  finish
endif

syntax keyword dtmDeclaration config mesh module fn param buffer forward import let
syntax keyword dtmStatement assert return if then else for in
syntax keyword dtmRegion auto local unchecked recompute
syntax keyword dtmPlacement partial place on Shard Replicate Partial
syntax keyword dtmType f64 f32 bf16 f16 f8_e4m3 f8_e5m2 i64 i32 i16 i8 u8 bool
syntax keyword dtmType int float string axis layout list dtype any
syntax keyword dtmConstant true false none

" Words that have a meaning in their place alone, and are names everywhere else.
syntax match dtmDeclaration "^\s*\zs\(train\|eval\|infer\)\ze\s*{"
" Two words in a row at the beginning of a line: a setting of train, eval or infer.
syntax match dtmSetting "^\s*\zs\l[a-z_]*\ze\s\+[A-Za-z0-9\"(]"
syntax match dtmStatement "^\s*\zs\<rename\>\ze\s*{"
syntax match dtmStatement "^\s*\zs\<store\>\ze\s\+\h"
syntax match dtmStatement "\<\(as\|chunks\|every\|name\|over\|per\|ranks\|transposed\)\>\ze\s*[\[\"A-Za-z0-9_]"

" After a point any word is a member; a word before a parenthesis is called.
syntax match dtmMember "\.\zs\h\w*"
syntax match dtmCall "\<\h\w*\ze\s*("
syntax match dtmAxis "\(@\s*\)\@<=\h\w*"
syntax match dtmAxis "\(@\s*([A-Za-z0-9_, ]*\)\@<=\h\w*"
syntax match dtmOperator "->\|\*\*\|==\|!=\|<=\|>=\|&&\|||\|@"

syntax match dtmNumber "\<\d[0-9_]*\(\.\d[0-9_]*\)\?\([eE][+-]\?\d\+\)\?\>"
syntax region dtmString start=+"+ skip=+\\.+ end=+"+ oneline contains=dtmEscape
syntax match dtmEscape "\\." contained
syntax keyword dtmTodo TODO FIXME XXX contained
syntax match dtmComment "//.*$" contains=dtmTodo,@Spell

highlight default link dtmDeclaration Structure
highlight default link dtmStatement Statement
highlight default link dtmRegion PreProc
highlight default link dtmPlacement StorageClass
highlight default link dtmSetting Identifier
highlight default link dtmType Type
highlight default link dtmConstant Constant
highlight default link dtmCall Function
highlight default link dtmAxis Special
highlight default link dtmOperator Operator
highlight default link dtmNumber Number
highlight default link dtmString String
highlight default link dtmEscape SpecialChar
highlight default link dtmTodo Todo
highlight default link dtmComment Comment

let b:current_syntax = "dtm"
