"""The sentences of each phase. The client says the lines that begin with `>`, and the agent says the others.
Consecutive lines of one speaker are one turn."""

from automation_pipeline.simulator.speech.transcript import Phase

# A call contains one version of a phase. The keywords of audits (rétractation, enregistré, IBAN, signature, ORIAS,
# cotisation ...) occur in one phase only, so that audits find a phase that is missing.
PHRASES: dict[Phase, tuple[tuple[str, ...], ...]] = {
    Phase.PRESENTATION: (
        (
            "Bonjour {civilite}, {agent} à l'appareil, du cabinet {company}. Je suis bien avec {client} ?",
            "> Oui, c'est moi.",
            "Je vous appelle à propos de votre demande de comparaison pour une complémentaire santé. Nous sommes",
            "courtier, immatriculé à l'ORIAS, et nous travaillons avec plusieurs mutuelles.",
            "> D'accord, je vous écoute.",
        ),
        (
            "Allô, bonjour, je cherche à joindre {client}, s'il vous plaît.",
            "> C'est bien moi. C'est à quel sujet ?",
            "Je me présente, {agent}, conseiller chez {company}, société de courtage inscrite à l'ORIAS. Vous avez",
            "demandé un devis pour votre mutuelle sur internet.",
            "> Ah oui, je me souviens, la semaine dernière.",
        ),
        (
            "Bonjour, {agent}, société {company}, courtier en assurance. Comment allez-vous {civilite} ?",
            "> Ça va, merci. (rire) Il y a du vent aujourd'hui.",
            "Ici aussi ! Je vous rappelle comme convenu pour étudier votre couverture santé. Notre numéro ORIAS figure",
            "dans le courriel que je vous ai envoyé.",
            "> Oui, je l'ai reçu.",
        ),
    ),
    Phase.RECORDING_NOTICE: (
        (
            "Avant de commencer, je vous informe que cet appel est enregistré, à des fins de preuve et de qualité.",
            "Êtes-vous d'accord ?",
            "> Oui, pas de souci.",
        ),
        (
            "Je dois vous préciser que notre conversation est enregistrée. Vous pouvez vous y opposer, il suffit de me",
            "le dire.",
            "> Non non, allez-y.",
        ),
        (
            "Pour votre information, l'enregistrement de cet échange est conservé par notre service qualité. Cela vous",
            "convient ?",
            "> Oui, bien sûr.",
        ),
    ),
    Phase.DISCOVERY: (
        (
            "Pour bien vous conseiller, j'ai besoin de connaître vos besoins. Portez-vous des lunettes ?",
            "> Oui, des verres progressifs, je les change tous les deux ans.",
            "Et pour le dentaire, avez-vous des soins prévus ?",
            "> Une couronne, le dentiste m'en a parlé au printemps.",
            "Suivez-vous un traitement régulier, voyez-vous des spécialistes ?",
            "> Un cardiologue une fois par an, et il prend des dépassements.",
        ),
        (
            "Dites-moi, quels sont vos besoins de santé les plus importants aujourd'hui ?",
            "> Surtout l'hôpital. J'ai eu une opération l'an dernier et la chambre n'était pas remboursée.",
            "Je comprends. Souhaitez-vous une chambre particulière prise en charge ?",
            "> Oui, ça c'est important pour moi.",
            "L'optique et l'audition, est-ce un sujet pour vous ?",
            "> Les oreilles, ça commence. (rire) Chez moi on dit que je n'entends que ce qui m'arrange.",
        ),
        (
            "Parlons de vos besoins : combien de personnes faut-il couvrir, vous uniquement ou toute la famille ?",
            "> Moi seulement, les enfants sont grands.",
            "Avez-vous recours à l'ostéopathie ou aux cures thermales ?",
            "> L'ostéopathe trois ou quatre fois dans l'année.",
            "Très bien, je retiens les médecines douces et les soins courants.",
            "> Voilà, et que ça reste simple.",
        ),
    ),
    Phase.CURRENT_CONTRACT: (
        (
            "Aujourd'hui, quelle est votre mutuelle ?",
            "> Chez {former_insurer}, depuis quelques années.",
            "Et combien réglez-vous chaque mois dans votre contrat actuel ?",
            "> À peu près {former_price}, ça augmente tous les ans.",
            "Votre contrat actuel a-t-il plus d'un an ? Dans ce cas nous nous occupons de la résiliation.",
            "> Oui, largement plus d'un an.",
        ),
        (
            "Avez-vous votre contrat actuel sous les yeux ?",
            "> Oui, c'est {former_insurer}. Je paie {former_price}.",
            "Leurs remboursements vous conviennent-ils ?",
            "> Pas vraiment, surtout pour les dents.",
            "La résiliation de votre contrat actuel se fera sans démarche de votre part.",
            "> Tant mieux, je n'aime pas les papiers.",
        ),
    ),
    Phase.PRODUCT: (
        (
            "Je vous propose la formule {formula}, de {insurer}. L'hospitalisation est remboursée à cent cinquante",
            "pour cent, avec la chambre particulière.",
            "> Et pour les lunettes ?",
            "Les garanties optiques vont jusqu'à deux cents euros tous les deux ans, et les soins courants sont pris",
            "en charge sans délai de carence.",
            "> C'est mieux que ce que j'ai.",
        ),
        (
            "D'après ce que vous me dites, la solution adaptée est {formula}, chez {insurer}. Les garanties couvrent",
            "l'hôpital, le dentaire et l'optique, avec le tiers payant partout en France.",
            "> Il y a un délai avant la prise en charge ?",
            "Non, aucun délai de carence. Vous recevez le tableau des garanties et le document d'information.",
            "> D'accord.",
        ),
        (
            "J'ai comparé quatre mutuelles. Celle qui répond à votre demande est {insurer}, formule {formula}.",
            "> Je ne la connais pas, celle-là.",
            "C'est une mutuelle sérieuse. Les garanties prévoient le réseau de soins, l'assistance à domicile et un",
            "bon niveau en dentaire.",
            "> Bon, et le médecin traitant ?",
            "Remboursé entièrement, sur la base du tarif de convention.",
        ),
    ),
    Phase.PRICE: (
        (
            "Pour cette formule, votre cotisation mensuelle est de {price}, tout compris.",
            "> {price}, et ça ne bouge pas ?",
            "Votre cotisation est fixe jusqu'à la fin de l'année civile.",
            "> D'accord.",
        ),
        (
            "Le montant de la cotisation s'élève à {price} par mois, sans frais de dossier.",
            "> C'est un peu moins que maintenant. (rire) Pour une fois.",
        ),
    ),
    Phase.PRESSURE: (
        (
            "> Je préfère réfléchir et en parler à mon fils.",
            "Écoutez, c'est votre dernière chance, demain l'offre n'existe plus. Il faut décider maintenant.",
            "> Vous me mettez la pression, là.",
            "Tout le monde accepte, vous n'allez quand même pas perdre cet argent !",
        ),
        (
            "> Vous pouvez m'envoyer tout ça par courrier ?",
            "Non, ça ne sert à rien. Si vous raccrochez, c'est perdu, je ne pourrai plus rien pour vous.",
            "> Bon... si vous le dites.",
            "Alors on valide tout de suite, vous n'avez pas le choix.",
        ),
    ),
    Phase.WITHDRAWAL_RIGHT: (
        (
            "Vous disposez d'un délai de rétractation de 14 jours à compter de la conclusion du contrat, sans motif ni",
            "pénalité.",
            "> Quatorze jours, d'accord. Et comment je fais ?",
            "Un simple courrier suffit, le modèle de lettre de rétractation est joint à votre dossier.",
            "> Très bien.",
        ),
        (
            "Je vous rappelle votre droit de rétractation : pendant 14 jours calendaires, vous pouvez renoncer sans",
            "vous justifier.",
            "> C'est bon à savoir.",
        ),
    ),
    Phase.CONSENT: (
        (
            "Êtes-vous d'accord pour adhérer à cette formule ?",
            "> Oui, je suis d'accord.",
            "Je vous envoie un code par SMS pour la signature électronique. Prenez le temps de lire les documents",
            "avant de signer.",
            "> Je l'ai reçu. Je fais quoi ?",
            "Vous cochez les cases, puis vous saisissez le code. Parfait, votre signature est validée.",
        ),
        (
            "Si tout est clair, donnez-vous votre accord pour souscrire ce contrat ?",
            "> Oui, allons-y.",
            "Ouvrez le lien reçu par courriel : vous y trouvez la page de signature électronique.",
            "> Attendez, je mets mes lunettes. (rire) Voilà, c'est signé.",
        ),
    ),
    Phase.PAYMENT: (
        (
            "Pour le règlement, j'ai besoin de votre IBAN. Il commence par F R 76.",
            "> Oui, F R 76, puis 9999, 8888, et la fin 042.",
            "Merci. Le prélèvement aura lieu le {debited_on} de chaque mois.",
            "> Le {debited_on}, ça me va.",
        ),
        (
            "Vous pouvez me dicter votre IBAN ? Il est sur votre relevé.",
            "> Je le cherche... F R 76, 9999, 7777, je vous passe la suite par courriel.",
            "C'est noté. Le mandat de prélèvement est dans le dossier, à la date du {debited_on}.",
            "> Parfait.",
        ),
    ),
    Phase.RECAP: (
        (
            "Je récapitule : formule {formula} chez {insurer}, au tarif convenu, à effet du {starts_on}.",
            "> C'est bien ça.",
            "Avez-vous d'autres questions ?",
            "> Non, tout est clair.",
        ),
        (
            "En résumé, {insurer} vous couvre à partir du {starts_on}, avec la formule {formula}.",
            "> Très bien, et ma carte ?",
            "Elle arrive sous une dizaine de jours par la poste.",
        ),
    ),
    Phase.THANKS: (
        (
            "Je vous remercie de votre confiance, {civilite}. Très bonne journée à vous.",
            "> Merci, au revoir.",
        ),
        (
            "Merci pour votre temps. Je reste votre interlocuteur, n'hésitez pas à me rappeler. Au revoir.",
            "> Au revoir, bonne journée.",
        ),
    ),
    Phase.FOLLOW_UP: (
        (
            "Rebonjour, c'est encore {agent}. Avez-vous bien reçu mon courriel ?",
            "> Je regarde... oui, il est arrivé ce matin.",
            "Parfait. Il me manque seulement l'attestation de la sécurité sociale.",
            "> Je vous l'envoie ce soir.",
        ),
        (
            "Bonjour, {agent} de {company}. Je reviens vers vous pour votre dossier chez {insurer}.",
            "> Oui, j'avais une question sur la carte de tiers payant.",
            "Elle est partie hier. En attendant, l'attestation suffit chez le pharmacien.",
            "> Très bien, merci.",
        ),
        (
            "> Allô, bonjour, je voudrais parler à {agent}, c'est {client}.",
            "C'est moi-même, que puis-je faire pour vous ?",
            "> L'adresse est fausse sur le papier, il manque le numéro de la rue.",
            "Je corrige tout de suite. (rire) Sans le numéro, le facteur aurait cherché longtemps.",
        ),
    ),
    Phase.CALL_BACK: (
        (
            "Bonjour, {agent}, je vous dérange ?",
            "> Je suis au travail, rappelez-moi demain.",
            "Entendu, à demain.",
        ),
        (
            "Allô, {client} ?",
            "> Ce n'est pas le moment, je conduis.",
            "Pardon, je vous rappelle ce soir.",
        ),
        ("Bonjour, je suis {agent}.", "> Ça ne m'intéresse plus, merci."),
    ),
    Phase.VOICEMAIL: (
        (
            "> Vous êtes bien sur la messagerie de {client}. Laissez un message après le bip.",
            "(bip)",
        ),
        (
            "> Bonjour, nous sommes absents, merci de rappeler plus tard.",
            "(bip) Bonjour, {agent}, je rappellerai.",
        ),
    ),
}
