"""Exchanges that lengthen a long call, each said at most once. What must be said is in
`phrases.py`."""

QUESTIONS: tuple[tuple[str, ...], ...] = (
    (
        "> Et les médecines douces ?",
        "Quatre séances par an, ostéopathe ou acupuncteur, à trente euros la séance.",
    ),
    (
        "> Les appareils auditifs, c'est compris ?",
        "Oui, les modèles de classe un sont sans reste à charge.",
    ),
    (
        "> Si je pars en vacances en Espagne ?",
        "Vous gardez la carte européenne, et l'assistance vous rapatrie.",
    ),
    ("> Mon pharmacien prendra la carte ?", "Oui, le tiers payant est accepté partout."),
    (
        "> Et les cures thermales ?",
        "Un forfait de cent cinquante euros, sur prescription de votre médecin.",
    ),
    (
        "> Le kiné, j'y vais souvent.",
        "Le ticket modérateur est remboursé, sans limite du nombre de séances.",
    ),
    (
        "> Mes analyses de sang ?",
        "Prises en charge à cent pour cent de la base, au laboratoire de votre choix.",
    ),
    (
        "> On peut ajouter une personne plus tard ?",
        "Bien sûr, à tout moment, avec une remise pour la famille.",
    ),
    ("> Il y a un questionnaire médical ?", "Non, aucune question de santé n'est posée."),
    (
        "> Comment j'envoie mes factures ?",
        "Par l'application, une photo suffit, ou bien par courrier.",
    ),
    (
        "> Les implants dentaires ?",
        "Un forfait de trois cents euros par an, à partir de la première année.",
    ),
    ("> Et si je déménage ?", "Vous nous prévenez, le contrat vous suit."),
    (
        "> Ma fille est étudiante, elle compte ?",
        "Jusqu'à vingt-cinq ans, elle peut rester avec vous.",
    ),
    ("> Les vaccins ?", "Le vaccin contre la grippe est offert, les autres sur ordonnance."),
    ("> Le transport en ambulance ?", "Oui, s'il est prescrit, il est remboursé entièrement."),
    (
        "> Et l'aide à la maison après une opération ?",
        "Dix heures d'aide ménagère, par l'assistance.",
    ),
)
