"""Statistics as pure functions of counts and scores, without I/O: the same answer for the same numbers every time.

    scores        means, spreads, Wilson's interval, intervals that may be checked after every trial
    intervals     exact intervals of shares and of means of bounded numbers, Student's t
    paired        exact tests of two runs of the same tasks
    anytime       a test and an interval for looking again and again
    power         how often a drop would be found, by simulation
    difference    the verdict on a difference
    agreement     kappas, AC1 and alpha of raters
    corrected     a pass rate corrected for the judge's error; design effects
    lift          activation, benefit and lift of a skill

numpy is loaded only where two runs are compared or a judge's agreement is measured.
"""
