/* The grammar of `.dtm`: LALR(1) without conflicts. Actions call builders (syntax/build.h) and push
 * to lists, nothing else. The reference for readers is README.md; keep the two in step.
 *
 * Line ends come as NEWLINE only where a statement may end (tokens.c). After a syntax error the
 * rules with `skipped` find the next line end, '}' or block, so one run reports all errors. A rule
 * `HEAD skipped block` always has a twin without the block: the error may lie behind it. */
%require "3.8"
%expect 0
%define api.pure full
%define api.prefix {dtm_}
%define api.token.prefix {TOK_}
%define api.location.type {Span}
%define parse.error custom
%define parse.lac full
%define lr.default-reduction consistent
%locations
%param {Parser *p}

%code requires {
#include "grammar/parse.h"

typedef struct NamedSetting {
  Name keyword, name;
  SettingParts parts;
} NamedSetting;
}

%union {
  const char *word;
  Name name;
  Expr *expr;
  TypeExpr *type;
  Stmt *stmt;
  Arg arg;
  ListItem item;
  IndexItem index;
  PartialItem partial;
  PlaceItem placed;
  ParamDecl param;
  RenameItem rename;
  SettingPart part;
  ConfigItem entry;
  MeshDim dim;
  ExprList exprs;
  StmtList stmts;
  ArgList args;
  ItemList items;
  IndexList indexes;
  TypeList types;
  PartialList partials;
  PlaceList places;
  ParamList params;
  NameList names;
  RenameList renames;
  SettingParts parts;
  NamedSetting named;
  ConfigItemList entries;
  MeshDimList dims;
}

%code {
int dtm_lex(DTM_STYPE *value, Span *span, Parser *p);
static void dtm_error(Span *span, Parser *p, const char *message);

#define A (p->build.arena)
#define B (&p->build)
#define NO_NAME ((Name){0})
#define YYLLOC_DEFAULT(now, rhs, n)                                                                \
  do                                                                                               \
    if (n)                                                                                         \
      (now) = span_join(YYRHSLOC(rhs, 1), YYRHSLOC(rhs, n));                                       \
    else                                                                                           \
      (now) = (Span){YYRHSLOC(rhs, 0).file, YYRHSLOC(rhs, 0).end, YYRHSLOC(rhs, 0).end};           \
  while (0)
}

%token END 0
%token NEWLINE
%token NEVER /* no lexer gives it, see `skipped` */
%token BAD /* a character without meaning, reported by the lexer: fits nowhere */
%token <word> NAME DTYPE
%token <expr> INT FLOAT STRING
%token <word> AS ASSERT AUTO BUFFER CHUNKS CONFIG ELSE EVAL EVERY FALSE FN FOR FORWARD IF IMPORT IN
%token <word> INFER LET LOCAL MESH MODULE NAME_WORD NONE ON OVER PARAM PARTIAL PER PLACE RANKS
%token <word> RECOMPUTE RENAME RETURN STORE THEN TRAIN TRANSPOSED TRUE UNCHECKED
%token ARROW POWER EQ NE LE GE AND OR

/* On a line of train, eval, infer a name before '(', '[' or '-' heads an expression: `print(x)`.
 * `loss (a + b) / n` and `seed -1` are turned into settings by build_setting_expr. */
%precedence '(' '['
%left OR
%left AND
%nonassoc EQ NE '<' LE '>' GE
%left '+' '-'
%left '*' '/' '%'
%precedence UNARY
%right POWER

%type <word> soft_word block_word part_word
%type <name> name arg_name
%type <expr> expr operand postfix primary literal axis base_opt type_expr
%type <expr> ranks_opt message_opt slice_bound
%type <exprs> exprs axes axis_exprs
%type <arg> arg
%type <args> args arg_list
%type <item> item
%type <items> items dims item_list
%type <index> index
%type <indexes> indexes
%type <type> type bare_type dtype_type named_type dtype_head type_opt
%type <types> results types
%type <partial> partial
%type <partials> partials
%type <placed> placed
%type <places> places
%type <param> param_decl
%type <params> params param_list
%type <names> names
%type <stmt> stmt let_stmt assert_stmt if_stmt
%type <stmt> member member_if param_stmt method rename_stmt
%type <stmt> line line_if setting member_store
%type <stmts> block stmts stmt_list else_opt
%type <stmts> member_block members member_list member_else
%type <stmts> line_block lines line_list line_else settings
%type <rename> rename_entry
%type <renames> rename_entries
%type <part> part
%type <parts> setting_parts
%type <named> named_setting
%type <entry> config_entry
%type <entries> config_entries
%type <dim> mesh_dim
%type <dims> mesh_dims

%%

/* --- the file --- */

file: %empty | top_items;
top_items: top_item | top_items NEWLINE top_item;

top_item
  : IMPORT name                        { build_import(B, @1, $2.text, false, @2, NO_NAME); }
  | IMPORT name AS name                { build_import(B, @1, $2.text, false, @2, $4); }
  | IMPORT STRING                      { build_import(B, @1, $2->as.s, true, @2, NO_NAME); }
  | IMPORT STRING AS name              { build_import(B, @1, $2->as.s, true, @2, $4); }
  | CONFIG '{' config_entries '}'      { build_config(B, @1, $3, @4); }
  | CONFIG '{' config_entries skipped '}' { build_config(B, @1, $3, @5); }
  | MESH name '(' mesh_dims ')' ranks_opt { build_mesh(B, @1, $2, $4, $6, @$); }
  | FN name '(' params ')' results block  { build_fn(B, @1, $2, $4, $6, $7, @7); }
  | FN name skipped block              { build_item_error(B, @$, $2); }
  | FN name skipped                    { build_item_error(B, @$, $2); }
  | MODULE name '(' params ')' base_opt member_block
                                       { build_module(B, @1, $2, $4, $6, $7, @7); }
  | MODULE name skipped member_block   { build_item_error(B, @$, $2); }
  | MODULE name skipped                { build_item_error(B, @$, $2); }
  | let_stmt                           { build_top_let(B, $1); }
  | block_word line_block              { build_block(B, (Name){$1, @1}, $2, @2); }
  | skipped                            { build_item_error(B, @$, NO_NAME); }
  ;

block_word: TRAIN | EVAL | INFER;

config_entries
  : %empty                             { $$ = (ConfigItemList){0}; }
  | config_entries config_entry        { $$ = $1; VEC_PUSH(A, &$$, $2); }
  | config_entries NEWLINE             { $$ = $1; }
  | config_entries skipped NEWLINE     { $$ = $1; }
  ;
config_entry
  : name '=' expr                      { $$ = build_config_item($1, NULL, $3); }
  | name ':' type '=' expr             { $$ = build_config_item($1, $3, $5); }
  ;

mesh_dims
  : mesh_dim                           { $$ = (MeshDimList){0}; VEC_PUSH(A, &$$, $1); }
  | mesh_dims ',' mesh_dim             { $$ = $1; VEC_PUSH(A, &$$, $3); }
  | mesh_dims ','                      { $$ = $1; }
  ;
mesh_dim: name '=' expr                { $$ = build_mesh_dim($1, $3); };
ranks_opt
  : %empty                             { $$ = NULL; }
  | RANKS expr                         { $$ = $2; }
  ;

base_opt
  : %empty                             { $$ = NULL; }
  | ':' postfix                        { $$ = $2; }
  ;

/* --- functions --- */

params
  : %empty                             { $$ = (ParamList){0}; }
  | param_list
  | param_list ','                     { $$ = $1; }
  ;
param_list
  : param_decl                         { $$ = (ParamList){0}; VEC_PUSH(A, &$$, $1); }
  | param_list ',' param_decl          { $$ = $1; VEC_PUSH(A, &$$, $3); }
  ;
param_decl
  : name type_opt                      { $$ = build_param_decl($1, $2, NULL); }
  | name type_opt '=' expr             { $$ = build_param_decl($1, $2, $4); }
  ;
type_opt
  : %empty                             { $$ = NULL; }
  | ':' type                           { $$ = $2; }
  ;

results
  : %empty                             { $$ = (TypeList){0}; }
  | ARROW types                        { $$ = $2; }
  | ARROW '(' types ')'                { $$ = $3; }
  ;
types
  : type                               { $$ = (TypeList){0}; VEC_PUSH(A, &$$, $1); }
  | types ',' type                     { $$ = $1; VEC_PUSH(A, &$$, $3); }
  ;

/* --- types --- */

type
  : bare_type
  | bare_type ON postfix               { $$ = build_type_on(B, $1, $3); }
  ;
bare_type: dtype_type | named_type;

dtype_type
  : dtype_head
  | dtype_type PARTIAL '(' partials ')'  { $$ = $1; build_type_partial(B, $$, $4, @5); }
  | dtype_type PLACE '{' places '}'      { $$ = $1; build_type_place(B, $$, $4, @5); }
  ;
dtype_head
  : DTYPE                              { $$ = build_dtype(B, (Name){$1, @1}, false, @$); }
  | DTYPE dims                         { $$ = build_dtype(B, (Name){$1, @1}, false, @1);
                                         build_type_dims(B, $$, $2, @2); }
  ;
named_type
  : name                               { $$ = build_named_type(B, $1, false, @$); }
  | name '?'                           { $$ = build_named_type(B, $1, true, @$); }
  | MESH                               { $$ = build_named_type(B, (Name){$1, @1}, false, @$); }
  | MESH '?'                           { $$ = build_named_type(B, (Name){$1, @1}, true, @$); }
  | MODULE                             { $$ = build_named_type(B, (Name){$1, @1}, false, @$); }
  | DTYPE '?'                          { $$ = build_dtype(B, (Name){$1, @1}, true, @$); }
  | name dims                          { $$ = build_named_type(B, $1, false, @1);
                                         build_type_dims(B, $$, $2, @2); }
  | named_type PARTIAL '(' partials ')'  { $$ = $1; build_type_partial(B, $$, $4, @5); }
  | named_type PLACE '{' places '}'      { $$ = $1; build_type_place(B, $$, $4, @5); }
  ;
dims
  : '[' ']'                            { $$ = (ItemList){0}; }
  | '[' item_list ']'                  { $$ = $2; }
  ;

partials
  : partial                            { $$ = (PartialList){0}; VEC_PUSH(A, &$$, $1); }
  | partials ',' partial               { $$ = $1; VEC_PUSH(A, &$$, $3); }
  | partials ','                       { $$ = $1; }
  ;
partial
  : axis                               { $$ = (PartialItem){$1, NULL, @$}; }
  | axis ':' name                      { $$ = (PartialItem){$1, $3.text, @$}; }
  ;
places
  : placed                             { $$ = (PlaceList){0}; VEC_PUSH(A, &$$, $1); }
  | places ',' placed                  { $$ = $1; VEC_PUSH(A, &$$, $3); }
  | places ','                         { $$ = $1; }
  ;
placed: axis ':' postfix               { $$ = (PlaceItem){$1, $3, @$}; };

axis
  : name                               { $$ = build_name(B, $1); }
  | STRING
  | NONE                               { $$ = build_none(B, @1); }
  ;
axes
  : axis                               { $$ = (ExprList){0}; VEC_PUSH(A, &$$, $1); }
  | '(' axis_exprs ')'                 { $$ = $2; }
  ;
axis_exprs
  : expr                               { $$ = (ExprList){0}; VEC_PUSH(A, &$$, $1); }
  | axis_exprs ',' expr                { $$ = $1; VEC_PUSH(A, &$$, $3); }
  | axis_exprs ','                     { $$ = $1; }
  ;

/* --- expressions --- */

expr
  : operand
  | operand ON postfix                 { $$ = build_on(B, $1, $3); }
  | IF expr THEN expr ELSE expr        { $$ = build_conditional(B, @1, $2, $4, $6); }
  ;

operand
  : postfix
  | type_expr
  | RECOMPUTE postfix                  { $$ = build_recompute(B, @1, $2); }
  | '-' operand %prec UNARY            { $$ = build_unary(B, @1, UNARY_NEG, $2); }
  | '!' operand %prec UNARY            { $$ = build_unary(B, @1, UNARY_NOT, $2); }
  | operand POWER operand              { $$ = build_binary(B, $1, BINARY_POW, @2, $3); }
  | operand '*' operand                { $$ = build_binary(B, $1, BINARY_MUL, @2, $3); }
  | operand '/' operand                { $$ = build_binary(B, $1, BINARY_DIV, @2, $3); }
  | operand '%' operand                { $$ = build_binary(B, $1, BINARY_MOD, @2, $3); }
  | operand '+' operand                { $$ = build_binary(B, $1, BINARY_ADD, @2, $3); }
  | operand '-' operand                { $$ = build_binary(B, $1, BINARY_SUB, @2, $3); }
  | operand '<' operand                { $$ = build_binary(B, $1, BINARY_LT, @2, $3); }
  | operand LE operand                 { $$ = build_binary(B, $1, BINARY_LE, @2, $3); }
  | operand '>' operand                { $$ = build_binary(B, $1, BINARY_GT, @2, $3); }
  | operand GE operand                 { $$ = build_binary(B, $1, BINARY_GE, @2, $3); }
  | operand EQ operand                 { $$ = build_binary(B, $1, BINARY_EQ, @2, $3); }
  | operand NE operand                 { $$ = build_binary(B, $1, BINARY_NE, @2, $3); }
  | operand AND operand                { $$ = build_binary(B, $1, BINARY_AND, @2, $3); }
  | operand OR operand                 { $$ = build_binary(B, $1, BINARY_OR, @2, $3); }
  ;
type_expr: dtype_type                  { $$ = build_type_expr(B, $1); };

postfix
  : primary
  | postfix '(' args ')'               { $$ = build_call(B, $1, $3, @4); }
  | postfix '[' indexes ']'            { $$ = build_index(B, $1, $3, @4); }
  | postfix '.' name                   { $$ = build_member(B, $1, $3); }
  ;

primary
  : literal
  | name %prec UNARY                   { $$ = build_name(B, $1); }
  | CONFIG                             { $$ = build_name(B, (Name){$1, @1}); }
  | '(' expr ')'                       { $$ = build_parens(B, @1, $2, @3); }
  | '(' ')'                            { $$ = build_list(B, EXPR_TUPLE, @1, (ItemList){0}, @2); }
  | '(' item ',' ')'                   { $$ = build_list(B, EXPR_TUPLE, @1,
                                                         build_items(B, $2, (ItemList){0}), @4); }
  | '(' item ',' item_list ')'         { $$ = build_list(B, EXPR_TUPLE, @1,
                                                         build_items(B, $2, $4), @5); }
  | '[' ']'                            { $$ = build_list(B, EXPR_LIST, @1, (ItemList){0}, @2); }
  | '[' item_list ']'                  { $$ = build_list(B, EXPR_LIST, @1, $2, @3); }
  | '[' expr FOR name IN expr ']'      { $$ = build_comprehension(B, @1, $2, $4, $6, NULL, @7); }
  | '[' expr FOR name IN expr IF expr ']'
                                       { $$ = build_comprehension(B, @1, $2, $4, $6, $8, @9); }
  | LOCAL '(' args ')' ARROW types block { $$ = build_local(B, @1, $3, $6, $7, @7); }
  | AUTO '(' args ')' block            { $$ = build_auto(B, false, @1, $3, $5, @5); }
  | UNCHECKED '(' args ')' block       { $$ = build_auto(B, true, @1, $3, $5, @5); }
  ;
literal
  : INT
  | FLOAT
  | STRING
  | TRUE                               { $$ = build_bool(B, @1, true); }
  | FALSE                              { $$ = build_bool(B, @1, false); }
  | NONE                               { $$ = build_none(B, @1); }
  ;

args
  : %empty                             { $$ = (ArgList){0}; }
  | arg_list
  | arg_list ','                       { $$ = $1; }
  ;
arg_list
  : arg                                { $$ = (ArgList){0}; VEC_PUSH(A, &$$, $1); }
  | arg_list ',' arg                   { $$ = $1; VEC_PUSH(A, &$$, $3); }
  | arg_list AS expr                   { $$ = $1;
                                         VEC_PUSH(A, &$$, build_named_arg((Name){$2, @2}, false, $3)); }
  ;
arg
  : expr                               { $$ = build_arg($1); }
  | arg_name '=' expr                  { $$ = build_named_arg($1, false, $3); }
  | arg_name ':' expr                  { $$ = build_named_arg($1, true, $3); }
  ;
arg_name
  : name
  | MESH                               { $$ = (Name){$1, @1}; }
  ;

item_list
  : items
  | items ','                          { $$ = $1; }
  ;
items
  : item                               { $$ = (ItemList){0}; VEC_PUSH(A, &$$, $1); }
  | items ',' item                     { $$ = $1; VEC_PUSH(A, &$$, $3); }
  ;
item
  : expr                               { $$ = build_item($1, (ExprList){0}, @1); }
  | expr '@' axes                      { $$ = build_item($1, $3, @3); }
  ;

indexes
  : index                              { $$ = (IndexList){0}; VEC_PUSH(A, &$$, $1); }
  | indexes ',' index                  { $$ = $1; VEC_PUSH(A, &$$, $3); }
  ;
index
  : expr                               { $$ = build_index_item($1); }
  | slice_bound ':' slice_bound        { $$ = build_slice(@$, $1, $3, NULL); }
  | slice_bound ':' slice_bound ':' slice_bound { $$ = build_slice(@$, $1, $3, $5); }
  ;
slice_bound
  : %empty                             { $$ = NULL; }
  | expr
  ;

exprs
  : expr                               { $$ = (ExprList){0}; VEC_PUSH(A, &$$, $1); }
  | exprs ',' expr                     { $$ = $1; VEC_PUSH(A, &$$, $3); }
  ;

name
  : NAME                               { $$ = (Name){$1, @1}; }
  | soft_word                          { $$ = (Name){$1, @1}; }
  ;
soft_word
  : AS | CHUNKS | EVAL | IN | INFER | NAME_WORD | RANKS | RENAME | STORE | TRAIN | TRANSPOSED
  ;

/* --- statements of functions --- */

block
  : '{' stmts '}'                      { $$ = $2; }
  ;
stmts
  : %empty                             { $$ = (StmtList){0}; }
  | stmt_list
  | stmt_list NEWLINE                  { $$ = $1; }
  ;
stmt_list
  : stmt                               { $$ = (StmtList){0}; VEC_PUSH(A, &$$, $1); }
  | stmt_list NEWLINE stmt             { $$ = $1; VEC_PUSH(A, &$$, $3); }
  ;
stmt
  : let_stmt
  | assert_stmt
  | if_stmt
  | name '=' expr                      { $$ = build_assign(B, $1, $3); }
  | RETURN exprs                       { $$ = build_return(B, @1, $2); }
  | expr                               { $$ = build_expr_stmt(B, $1); }
  | FOR name IN expr block             { $$ = build_for(B, @1, $2, $4, $5, @5); }
  | FOR skipped block                  { $$ = build_stmt_error(B, @$); }
  | FOR skipped                        { $$ = build_stmt_error(B, @$); }
  | ON postfix block                   { $$ = build_on_stmt(B, @1, $2, $3, @3); }
  | skipped                            { $$ = build_stmt_error(B, @1); }
  ;
let_stmt
  : LET names type_opt '=' expr        { $$ = build_let(B, @1, $2, $3, $5); }
  ;
names
  : name                               { $$ = (NameList){0}; VEC_PUSH(A, &$$, $1); }
  | names ',' name                     { $$ = $1; VEC_PUSH(A, &$$, $3); }
  ;
assert_stmt
  : ASSERT expr message_opt            { $$ = build_assert(B, @1, $2, $3); }
  ;
message_opt
  : %empty                             { $$ = NULL; }
  | ',' expr                           { $$ = $2; }
  ;
if_stmt
  : IF expr block else_opt             { $$ = build_if(B, @1, $2, $3, $4, @$); }
  | IF skipped block else_opt          { $$ = build_stmt_error(B, @$); }
  | IF skipped                         { $$ = build_stmt_error(B, @$); }
  ;
else_opt
  : %empty                             { $$ = (StmtList){0}; }
  | ELSE block                         { $$ = $2; }
  | ELSE if_stmt                       { $$ = (StmtList){0}; VEC_PUSH(A, &$$, $2); }
  ;

/* --- members of modules --- */

member_block
  : '{' members '}'                    { $$ = $2; }
  ;
members
  : %empty                             { $$ = (StmtList){0}; }
  | member_list
  | member_list NEWLINE                { $$ = $1; }
  ;
member_list
  : member                             { $$ = (StmtList){0}; VEC_PUSH(A, &$$, $1); }
  | member_list NEWLINE member         { $$ = $1; VEC_PUSH(A, &$$, $3); }
  ;
member
  : param_stmt
  | method
  | let_stmt
  | assert_stmt
  | rename_stmt
  | member_if
  | name '=' expr                      { $$ = build_assign(B, $1, $3); }
  | FOR name IN expr member_block      { $$ = build_for(B, @1, $2, $4, $5, @5); }
  | FOR skipped member_block           { $$ = build_stmt_error(B, @$); }
  | FOR skipped                        { $$ = build_stmt_error(B, @$); }
  | ON postfix member_block            { $$ = build_on_stmt(B, @1, $2, $3, @3); }
  | member_store
  | member_store member_block          { $$ = $1; build_store_body(B, $$, $2, @2); }
  | skipped                            { $$ = build_stmt_error(B, @1); }
  ;
member_store
  : STORE '@' axes                     { $$ = build_store(B, (Name){$1, @1}, NO_NAME, $3, @3); }
  | STORE name '@' axes                { $$ = build_store(B, (Name){$1, @1}, $2, $4, @4); }
  ;
member_if
  : IF expr member_block member_else   { $$ = build_if(B, @1, $2, $3, $4, @$); }
  | IF skipped member_block member_else { $$ = build_stmt_error(B, @$); }
  | IF skipped                         { $$ = build_stmt_error(B, @$); }
  ;
member_else
  : %empty                             { $$ = (StmtList){0}; }
  | ELSE member_block                  { $$ = $2; }
  | ELSE member_if                     { $$ = (StmtList){0}; VEC_PUSH(A, &$$, $2); }
  ;

param_stmt
  : PARAM name ':' type                { $$ = build_param(B, @1, false, $2, $4, NULL); }
  | PARAM name ':' type '=' expr       { $$ = build_param(B, @1, false, $2, $4, $6); }
  | BUFFER name ':' type               { $$ = build_param(B, @1, true, $2, $4, NULL); }
  | BUFFER name ':' type '=' expr      { $$ = build_param(B, @1, true, $2, $4, $6); }
  | param_stmt NAME_WORD postfix       { $$ = $1; build_param_name(B, $$, $3, @3); }
  | param_stmt TRANSPOSED              { $$ = $1; build_param_transposed(B, $$, @2); }
  | param_stmt CHUNKS '(' expr ')'     { $$ = $1; build_param_chunks(B, $$, $4, @5); }
  | param_stmt STORE '@' axes          { $$ = $1;
                                         build_param_store(B, $$, (Storage){NO_NAME, $4, @4}); }
  | param_stmt STORE name '@' axes     { $$ = $1;
                                         build_param_store(B, $$, (Storage){$3, $5, @5}); }
  ;

method
  : FORWARD '(' params ')' results block
                              { $$ = build_method(B, @1, false, (Name){$1, @1}, $3, $5, $6, @6); }
  | name '(' params ')' results block
                              { $$ = build_method(B, @1, false, $1, $3, $5, $6, @6); }
  | FN name '(' params ')' results block
                              { $$ = build_method(B, @1, true, $2, $4, $6, $7, @7); }
  | FORWARD skipped block              { $$ = build_stmt_error(B, @$); }
  | FORWARD skipped                    { $$ = build_stmt_error(B, @$); }
  | FN skipped block                   { $$ = build_stmt_error(B, @$); }
  | FN skipped                         { $$ = build_stmt_error(B, @$); }
  ;

rename_stmt
  : RENAME '{' rename_entries '}'      { $$ = build_rename(B, @1, $3, @4); }
  | RENAME '{' rename_entries skipped '}' { $$ = build_rename(B, @1, $3, @5); }
  ;
rename_entries
  : %empty                             { $$ = (RenameList){0}; }
  | rename_entries rename_entry        { $$ = $1; VEC_PUSH(A, &$$, $2); }
  | rename_entries NEWLINE             { $$ = $1; }
  | rename_entries ','                 { $$ = $1; }
  | rename_entries skipped NEWLINE     { $$ = $1; }
  ;
rename_entry: STRING '=' STRING        { $$ = build_rename_item($1, $3); };

/* --- lines of train, eval, infer --- */

line_block
  : '{' lines '}'                      { $$ = $2; }
  ;
lines
  : %empty                             { $$ = (StmtList){0}; }
  | line_list
  | line_list NEWLINE                  { $$ = $1; }
  ;
line_list
  : line                               { $$ = (StmtList){0}; VEC_PUSH(A, &$$, $1); }
  | settings
  | line_list NEWLINE line             { $$ = $1; VEC_PUSH(A, &$$, $3); }
  | line_list NEWLINE settings         { $$ = build_stmts(B, $1, $3); }
  ;
line
  : let_stmt
  | assert_stmt
  | line_if
  | name '=' expr                      { $$ = build_assign(B, $1, $3); }
  | operand                            { $$ = build_setting_expr(B, $1); }
  | FOR name IN expr line_block        { $$ = build_for(B, @1, $2, $4, $5, @5); }
  | FOR skipped line_block             { $$ = build_stmt_error(B, @$); }
  | FOR skipped                        { $$ = build_stmt_error(B, @$); }
  | skipped                            { $$ = build_stmt_error(B, @1); }
  ;
line_if
  : IF expr line_block line_else       { $$ = build_if(B, @1, $2, $3, $4, @$); }
  | IF skipped line_block line_else    { $$ = build_stmt_error(B, @$); }
  | IF skipped                         { $$ = build_stmt_error(B, @$); }
  ;
line_else
  : %empty                             { $$ = (StmtList){0}; }
  | ELSE line_block                    { $$ = $2; }
  | ELSE line_if                       { $$ = (StmtList){0}; VEC_PUSH(A, &$$, $2); }
  ;

settings
  : setting                            { $$ = (StmtList){0}; VEC_PUSH(A, &$$, $1); }
  | settings setting                   { $$ = $1; VEC_PUSH(A, &$$, $2); }
  ;
setting
  : named_setting                      { $$ = build_setting(B, $1.keyword, $1.name, $1.parts); }
  | name setting_parts                 { $$ = build_setting(B, $1, NO_NAME, $2); }
  | name '@' axes                      { $$ = build_store(B, $1, NO_NAME, $3, @3); }
  | name name '@' axes                 { $$ = build_store(B, $1, $2, $4, @4); }
  | rename_stmt
  ;
named_setting
  : name name '=' expr                 { $$ = (NamedSetting){$1, $2, {0}};
                                         VEC_PUSH(A, &$$.parts, (SettingPart){NULL, $4}); }
  | named_setting part                 { $$ = $1; VEC_PUSH(A, &$$.parts, $2); }
  ;
setting_parts
  : expr                               { $$ = (SettingParts){0};
                                         VEC_PUSH(A, &$$, (SettingPart){NULL, $1}); }
  | part                               { $$ = (SettingParts){0}; VEC_PUSH(A, &$$, $1); }
  | setting_parts part                 { $$ = $1; VEC_PUSH(A, &$$, $2); }
  ;
part: part_word expr                   { $$ = (SettingPart){$1, $2}; };
part_word: OVER | PER | EVERY;

/* --- recovery: what cannot be read, up to where reading goes on --- */

/* The second alternative keeps the state behind `error` from reducing without a look at the next
 * token: tokens are dropped until one comes that may follow. (Elsewhere such reductions are wanted: a
 * block that is complete is not to be opened again by an error behind it.) */
skipped
  : error                              { yyerrok; p->recovering = false; }
  | error NEVER
  ;

%%

/* The token of a terminal symbol: the inverse of bison's own table. */
static int token_of_symbol(yysymbol_kind_t symbol) {
  for (int token = 0; token <= YYMAXUTOK; token++)
    if (YYTRANSLATE(token) == symbol) return token;
  return TOK_DTM_UNDEF;
}

static int yyreport_syntax_error(const yypcontext_t *context, Parser *p) {
  yysymbol_kind_t symbols[YYNTOKENS];
  int tokens[YYNTOKENS];
  int n = yypcontext_expected_tokens(context, symbols, YYNTOKENS);
  for (int i = 0; i < n; i++) tokens[i] = token_of_symbol(symbols[i]);
  parser_syntax_error(p, token_of_symbol(yypcontext_token(context)), *yypcontext_location(context),
                      tokens, n);
  return 0;
}

static void dtm_error(Span *span, Parser *p, const char *message) {
  (void)message; /* only "memory exhausted" comes this way */
  parser_too_deep(p, *span, "too many operators or branches follow each other");
}
