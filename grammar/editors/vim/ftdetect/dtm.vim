autocmd BufRead,BufNewFile *.dtm setfiletype dtm
